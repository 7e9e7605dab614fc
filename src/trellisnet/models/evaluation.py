"""How well a language model knows a text, read as a stream: every word with its full receptive field.

Two options, off by default, let the model adapt to the text it has already seen. They make figures that must not be
compared with those of models without: each result says how it was made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trellisnet.core.checks import non_negative, positive, positive_int
from trellisnet.core.precision import without_autocast
from trellisnet.models.body import detach, needs_state
from trellisnet.models.heads.base import at_least_single

if TYPE_CHECKING:
    from trellisnet.models.text import TextMethods


def perplexity(nll: float) -> float:
    """Exp of a mean negative log-likelihood, however large."""
    return math.inf if nll >= 700 else math.exp(nll)


@dataclass(frozen=True, eq=False)
class Score:
    """The log-probability of every word but the first, and how it was found."""

    log_prob: Tensor  # (B, T - 1)
    protocol: str

    @property
    def nll(self) -> float:
        """Mean negative log-likelihood of a word, in nats."""
        return -self.log_prob.double().mean().item()

    @property
    def perplexity(self) -> float:
        """Exp of `nll`."""
        return perplexity(self.nll)

    @property
    def bits(self) -> float:
        """`nll` in bits: bits per character, if the words are characters."""
        return self.nll / math.log(2)


@dataclass(frozen=True)
class ContinuousCache:
    """Words that followed similar features become more probable (Grave, Joulin, Usunier, ICLR 2017).

    The model's probabilities are mixed with those of a cache, in which the word that came after each of the last
    `size` steps has a weight of exp(theta times the product of that step's features with those of now).

    Args:
        size: steps that are remembered.
        theta: sharpness; 0 weighs all remembered steps equally.
        share: of the cache in the mixture.
    """

    size: int = 500
    theta: float = 0.3
    share: float = 0.1

    def __post_init__(self) -> None:
        positive_int("cache size", self.size)
        non_negative("cache theta", self.theta)
        if positive("cache share", self.share) >= 1:
            raise ValueError(f"cache share must lie in (0, 1), got {self.share}")

    def __str__(self) -> str:
        return f"continuous cache (size {self.size}, theta {self.theta:g}, share {self.share:g})"


class CacheMemory:
    """A continuous cache in use: the features and following words of the last steps."""

    def __init__(self, options: ContinuousCache) -> None:
        self.options = options
        self.features: Tensor | None = None  # (S, B, D)
        self.words: Tensor | None = None  # (S, B)

    def mix(self, log_prob: Tensor, features: Tensor, words: Tensor) -> Tensor:
        """The log-probabilities (T, B) of the words that follow features (T, B, D), mixed with the cache's."""
        options, steps, device = self.options, len(words), words.device
        features = at_least_single(features)
        known, following = features, words
        if self.features is not None and self.words is not None:
            known, following = torch.cat([self.features, features]), torch.cat([self.words, words])
        past = len(known) - steps
        age = past + torch.arange(steps, device=device)[:, None] - torch.arange(len(known), device=device)
        remembered = ((age > 0) & (age <= options.size))[:, :, None]  # (T, S, 1): a step knows those before it
        with without_autocast(device.type):
            scores = options.theta * torch.einsum("tbd,sbd->tsb", features, known)
        scores = scores.masked_fill(~remembered, -torch.inf)
        agreeing = scores.masked_fill(following[None] != words[:, None], -torch.inf)
        cached = agreeing.logsumexp(1) - scores.logsumexp(1)
        mixed = torch.logaddexp(math.log1p(-options.share) + log_prob, math.log(options.share) + cached)
        self.features, self.words = known[-options.size :], following[-options.size :]
        return torch.where(remembered.any(1), mixed, log_prob)  # the very first step has nothing to remember


@dataclass(frozen=True, eq=False)
class DynamicEvaluation:
    """The model goes on learning from the text while it is judged (Krause, Kahembwe, Murray, Renals, ICML 2018).

    After each window has been judged, a step of gradient descent is made on it, and the parameters decay towards those
    that were trained. With the `statistics` of gradients on training text, both are scaled for each parameter (RMS);
    without, it is plain SGD. The model gets its own parameters back at the end.

    Args:
        learning_rate: of a step.
        decay: towards the trained parameters, in every step.
        statistics: mean squares of gradients, from `gradient_statistics`.
        epsilon: what is added to their roots.
    """

    learning_rate: float = 0.002
    decay: float = 0.02
    statistics: dict[str, Tensor] | None = None
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        non_negative("dynamic learning_rate", self.learning_rate)
        non_negative("dynamic decay", self.decay)
        positive("dynamic epsilon", self.epsilon)

    def __str__(self) -> str:
        rule = "SGD" if self.statistics is None else f"RMS, epsilon {self.epsilon:g}"
        return f"dynamic evaluation ({rule}, learning rate {self.learning_rate:g}, decay {self.decay:g})"

    def scales(self, model: nn.Module) -> dict[str, tuple[Tensor | float, Tensor | float]]:
        """What a parameter's gradient is divided by, and its decay, by the parameter's name."""
        if self.statistics is None:
            return {name: (1.0, self.decay) for name in _learned(model)}
        roots = {}
        for name, parameter in _learned(model).items():
            mean_square = self.statistics.get(name)
            if mean_square is None or mean_square.shape != parameter.shape:
                got = None if mean_square is None else tuple(mean_square.shape)
                raise ValueError(f"statistics of {name} must have the shape {tuple(parameter.shape)}, got {got}")
            roots[name] = mean_square.to(parameter).sqrt()
        mean = sum(root.sum() for root in roots.values()) / sum(root.numel() for root in roots.values())
        # a decay above 1 would overshoot the trained parameters
        return {name: (root + self.epsilon, (self.decay * root / mean).clamp(max=1)) for name, root in roots.items()}


def score(
    lm: TextMethods,
    ids: Tensor,
    window: int,
    cache: ContinuousCache | None = None,
    dynamic: DynamicEvaluation | None = None,
) -> Score:
    """Log-probabilities of texts (B, T), read in windows with exact history."""
    memory = None if cache is None else CacheMemory(cache)
    parts = []
    with torch.inference_mode(False), lm.reading(), _restored(lm, dynamic) as trained:
        ids = ids.clone()  # a tensor made in inference mode could not take part in learning
        scales = dynamic.scales(lm) if dynamic is not None else {}
        for read, words, features in _windows(lm, ids, window, gradients=dynamic is not None):
            with torch.set_grad_enabled(dynamic is not None):
                nll = lm.head.nll(features, words)
            log_prob = -nll.detach()
            parts.append(log_prob if memory is None else memory.mix(log_prob, features.detach(), words))
            if dynamic is not None and read < ids.shape[1] - 1:
                _learn(lm, nll, dynamic, scales, trained)
    options = [str(option) for option in (cache, dynamic) if option is not None]
    windows = f" in windows of {window}" if dynamic is not None else ""
    return Score(torch.cat(parts).t(), ", ".join([f"exact streaming{windows}", *options]))


def gradient_statistics(lm: TextMethods, ids: Tensor, window: int = 128) -> dict[str, Tensor]:
    """Mean squares of the gradients of every parameter on windows of a training text (B, T)."""
    ids, window = lm.read_columns("ids", ids), positive_int("window", window)
    learned = _learned(lm)
    totals = [torch.zeros_like(parameter) for parameter in learned.values()]
    count = 0
    with torch.inference_mode(False), lm.reading():
        for _, words, features in _windows(lm, ids.clone(), window, gradients=True):
            with torch.enable_grad():
                loss = lm.head.loss(features, words)
            for total, gradient in zip(totals, _gradients(loss, learned), strict=True):
                if gradient is not None:
                    total.addcmul_(gradient, gradient)
            count += 1
    return {name: total / count for name, total in zip(learned, totals, strict=True)}


def _windows(lm: TextMethods, ids: Tensor, window: int, gradients: bool) -> Iterator[tuple[int, Tensor, Tensor]]:
    """For each window of a text: how far it is read, the words that followed (T, B), and the features before them."""
    state = None
    for start in range(0, ids.shape[1] - 1, window):
        stop = min(start + window, ids.shape[1] - 1)
        with torch.set_grad_enabled(gradients):
            features = lm.features(ids[:, start:stop], state)
        state = detach(needs_state(lm.net, features.state))
        yield stop, ids[:, start + 1 : stop + 1].t(), features.output


def _learn(
    lm: TextMethods,
    nll: Tensor,
    dynamic: DynamicEvaluation,
    scales: dict[str, tuple[Tensor | float, Tensor | float]],
    trained: dict[str, Tensor],
) -> None:
    learned = _learned(lm)
    with torch.enable_grad():
        loss = nll.mean()
    for (name, parameter), gradient in zip(learned.items(), _gradients(loss, learned), strict=True):
        divisor, decay = scales[name]
        change = decay * (trained[name] - parameter)
        if gradient is not None:
            change -= dynamic.learning_rate * gradient / divisor
        parameter.add_(change)


def _learned(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _gradients(loss: Tensor, learned: dict[str, nn.Parameter]) -> tuple[Tensor | None, ...]:
    with without_autocast(loss.device.type):  # torch wants backward passes outside of it
        return torch.autograd.grad(loss, list(learned.values()), allow_unused=True)


@contextmanager
def _restored(lm: TextMethods, dynamic: DynamicEvaluation | None) -> Iterator[dict[str, Tensor]]:
    """The parameters as they are, given back when dynamic evaluation is over, whatever happens."""
    if dynamic is None:
        yield {}
        return
    trained = {name: parameter.detach().clone() for name, parameter in lm.named_parameters()}
    try:
        yield trained
    finally:
        with torch.no_grad():
            for name, parameter in lm.named_parameters():
                parameter.copy_(trained[name])
