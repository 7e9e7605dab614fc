"""Score a text with a language model. The text is read as a stream: every token has its full receptive field.

Two options, off by default, let the model adapt to the text that it has already scored. Results with and without them
are not comparable, so each result names its protocol.
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
    """Return exp(nll); infinity where that overflows."""
    return math.inf if nll >= 700 else math.exp(nll)


@dataclass(frozen=True, eq=False)
class Score:
    """The log-probability of every token but the first, and the protocol of the evaluation."""

    log_prob: Tensor  # (B, T - 1)
    protocol: str

    @property
    def nll(self) -> float:
        """Mean negative log-likelihood per token, in nats."""
        return -self.log_prob.double().mean().item()

    @property
    def perplexity(self) -> float:
        """Exp of `nll`."""
        return perplexity(self.nll)

    @property
    def bits(self) -> float:
        """`nll` in bits: bits per character, if the tokens are characters."""
        return self.nll / math.log(2)


@dataclass(frozen=True)
class ContinuousCache:
    """Raise the probability of tokens that followed similar features (Grave, Joulin, Usunier, ICLR 2017).

    The model's distribution is mixed with that of a cache of the last `size` steps. In the cache, the token after step
    s has the weight exp(theta * <features of step s, features of the current step>).

    Args:
        size: number of steps in the cache.
        theta: sharpness; 0 gives all cached steps the same weight.
        share: weight of the cache in the mixture, in (0, 1).
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


class CacheContent:
    """The content of a continuous cache: the features of the last steps and the tokens that followed them."""

    def __init__(self, options: ContinuousCache) -> None:
        self.options = options
        self.features: Tensor | None = None  # (S, B, D)
        self.tokens: Tensor | None = None  # (S, B)

    def mix(self, log_prob: Tensor, features: Tensor, tokens: Tensor) -> Tensor:
        """Mix log-probabilities (T, B) with those of the cache, and add the steps to the cache.

        Args:
            log_prob: (T, B), of `tokens`.
            features: (T, B, D), from which `tokens` were predicted.
            tokens: (T, B).
        """
        options, steps, device = self.options, len(tokens), tokens.device
        features = at_least_single(features)
        known, following = features, tokens
        if self.features is not None and self.tokens is not None:
            known, following = torch.cat([self.features, features]), torch.cat([self.tokens, tokens])
        past = len(known) - steps
        age = past + torch.arange(steps, device=device)[:, None] - torch.arange(len(known), device=device)
        in_cache = ((age > 0) & (age <= options.size))[:, :, None]  # (T, S, 1): earlier steps only
        with without_autocast(device.type):
            scores = options.theta * torch.einsum("tbd,sbd->tsb", features, known)
        scores = scores.masked_fill(~in_cache, -torch.inf)
        agreeing = scores.masked_fill(following[None] != tokens[:, None], -torch.inf)
        cached = agreeing.logsumexp(1) - scores.logsumexp(1)
        mixed = torch.logaddexp(math.log1p(-options.share) + log_prob, math.log(options.share) + cached)
        self.features, self.tokens = known[-options.size :], following[-options.size :]
        return torch.where(in_cache.any(1), mixed, log_prob)  # at the very first step the cache is empty


@dataclass(frozen=True, eq=False)
class DynamicEvaluation:
    """Continue training on the text while it is scored (Krause, Kahembwe, Murray, Renals, ICML 2018).

    After a window is scored, one step of gradient descent is made on it, and the parameters decay towards the trained
    ones. With `statistics` of gradients on training text, both are scaled per parameter (RMS); without, this is plain
    SGD. At the end the trained parameters are restored.

    Args:
        learning_rate: learning rate of a step.
        decay: rate of the decay towards the trained parameters, per step.
        statistics: mean squares of gradients by parameter name, from `gradient_statistics`.
        epsilon: added to the square roots of the statistics.
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
        """Return for each parameter name the divisor of its gradient and its decay.

        Raises:
            ValueError: a learned parameter has no statistics, or statistics of another shape.
        """
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
    """Score texts (B, T) in windows; the exact state is carried from window to window."""
    content = None if cache is None else CacheContent(cache)
    scored = []
    with torch.inference_mode(False), lm.reading(), _restored(lm, dynamic) as trained:
        ids = ids.clone()  # autograd does not accept a tensor made in inference mode
        scales = dynamic.scales(lm) if dynamic is not None else {}
        for stop, targets, features in _windows(lm, ids, window, gradients=dynamic is not None):
            with torch.set_grad_enabled(dynamic is not None):
                nll = lm.head.nll(features, targets)
            log_prob = -nll.detach()
            scored.append(log_prob if content is None else content.mix(log_prob, features.detach(), targets))
            if dynamic is not None and stop < ids.shape[1] - 1:
                _learn(lm, nll, dynamic, scales, trained)
    options = [str(option) for option in (cache, dynamic) if option is not None]
    windows = f" in windows of {window}" if dynamic is not None else ""
    return Score(torch.cat(scored).t(), ", ".join([f"exact streaming{windows}", *options]))


def gradient_statistics(lm: TextMethods, ids: Tensor, window: int = 128) -> dict[str, Tensor]:
    """Return the mean square, over the windows of a training text, of the gradient of every learned parameter.

    Args:
        lm: the language model.
        ids: (B, T), token ids of training text.
        window: number of steps per gradient.
    """
    ids, window = lm.read_columns("ids", ids), positive_int("window", window)
    learned = _learned(lm)
    totals = [torch.zeros_like(parameter) for parameter in learned.values()]
    count = 0
    with torch.inference_mode(False), lm.reading():
        for _, targets, features in _windows(lm, ids.clone(), window, gradients=True):
            with torch.enable_grad():
                loss = lm.head.loss(features, targets)
            for total, gradient in zip(totals, _gradients(loss, learned), strict=True):
                if gradient is not None:
                    total.addcmul_(gradient, gradient)
            count += 1
    return {name: total / count for name, total in zip(learned, totals, strict=True)}


def _windows(lm: TextMethods, ids: Tensor, window: int, gradients: bool) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield for each window of a text its end, its targets (T, B), and the features (T, B, D) that predict them."""
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
    with without_autocast(loss.device.type):  # torch recommends backward passes outside of autocast
        return torch.autograd.grad(loss, list(learned.values()), allow_unused=True)


@contextmanager
def _restored(lm: TextMethods, dynamic: DynamicEvaluation | None) -> Iterator[dict[str, Tensor]]:
    """Copy the parameters, and restore them at the end of dynamic evaluation, also after an error."""
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
