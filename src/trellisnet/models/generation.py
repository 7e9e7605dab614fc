"""Generate text token by token, on a state that is carried from step to step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from trellisnet.core.checks import positive, positive_int, seed_number
from trellisnet.models.body import State, select_rows

# The interface of a model for generation: from token ids (B, T), the state before them and the lengths of the rows
# (None: all T) to the log-probabilities (B, V) of the next token of each row and the state at its end. Ids and
# log-probabilities are on the CPU, the latter in double precision, on any device of the model.
NextToken = Callable[[Tensor, State, Sequence[int] | None], tuple[Tensor, State]]


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen from the log-probabilities.

    Args:
        temperature: divisor of the log-probabilities; None: 1 if `top_k`, `top_p` or `seed` is given, otherwise the
            most probable token is always chosen (greedy).
        top_k: sample from the k most probable tokens only.
        top_p: sample from the smallest set of most probable tokens with total probability p only.
        repetition_penalty: above 1, tokens that the text already has become less probable; see `Seen`.
        seed: seed of the random numbers; None: torch's global generator. Every row of a batch has its own random
            numbers, so equal prompts in two rows get different continuations.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.temperature is not None:
            positive("temperature", self.temperature)
        if self.top_k is not None:
            positive_int("top_k", self.top_k)
        if self.top_p is not None and positive("top_p", self.top_p) > 1:
            raise ValueError(f"top_p must lie in (0, 1], got {self.top_p}")
        positive("repetition_penalty", self.repetition_penalty)
        if self.seed is not None:
            seed_number("seed", self.seed)

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always chosen."""
        return all(option is None for option in (self.temperature, self.top_k, self.top_p, self.seed))

    def choose(self, log_prob: Tensor, uniform: Tensor) -> Tensor:
        """Choose one token per row: log-probabilities (B, V) and uniform random numbers in [0, 1) (B) to ids (B)."""
        if self.greedy:
            return log_prob.argmax(dim=1)
        best = log_prob.max(dim=1, keepdim=True).values  # subtracted: a tiny temperature must not underflow every score
        scores = (log_prob - best) / float(self.temperature or 1.0)
        if self.top_k is not None and self.top_k < scores.shape[1]:
            least = scores.topk(self.top_k, dim=1).values[:, -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if self.top_p is not None:
            ordered, tokens = scores.softmax(dim=1).sort(dim=1, descending=True, stable=True)
            before = ordered.cumsum(dim=1) - ordered  # the total probability of all more probable tokens
            excluded = torch.empty_like(before, dtype=torch.bool).scatter_(1, tokens, before >= self.top_p)
            excluded.scatter_(1, tokens[:, :1], False)
            scores = scores.masked_fill(excluded, -torch.inf)
        # invert the cumulative distribution; a token of probability 0 covers an empty interval and is never chosen
        cumulative = scores.softmax(dim=1).cumsum(dim=1)
        return torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True).squeeze(1)


class Seen:
    """The tokens that each text already has, for the repetition penalty (Keskar et al. 2019).

    The score of a token is its log-probability minus the mean over the vocabulary. The score of a seen token is divided
    by the penalty if it is positive, and multiplied by it if it is negative.
    """

    def __init__(self, texts: Sequence[Sequence[int]], vocab_size: int, penalty: float) -> None:
        self.penalty = float(penalty)  # torch cannot convert integers of any size
        self.mask: Tensor | None = None  # (B, V)
        if penalty != 1:
            self.mask = torch.zeros(len(texts), vocab_size, dtype=torch.bool, device="cpu")
            for row, text in enumerate(texts):
                self.mask[row, list(text)] = True

    def penalise(self, log_prob: Tensor) -> Tensor:
        """Apply the penalty to log-probabilities (B, V); the probabilities no longer sum to one."""
        if self.mask is None:
            return log_prob
        mean = log_prob.mean(dim=1, keepdim=True)
        score = log_prob - mean
        lowered = torch.where(score > 0, score / self.penalty, score * self.penalty)
        return torch.where(self.mask, mean + lowered, log_prob)

    def extend(self, rows: Tensor, tokens: Tensor) -> None:
        """Keep the given rows, in that order, and add one token to each."""
        if self.mask is not None:
            self.mask = self.mask[rows].scatter(1, tokens[:, None], True)


def read_prompts(model: NextToken, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, State]:
    """Read prompts of any lengths as one batch; return the log-probabilities (B, V) and the state after each."""
    ids = pad_sequence([torch.tensor(prompt, device="cpu") for prompt in prompts], batch_first=True)
    lengths = [len(prompt) for prompt in prompts]
    return model(ids, None, lengths if min(lengths) < max(lengths) else None)


def stream(
    model: NextToken, prompts: Sequence[Sequence[int]], max_new_tokens: int, sampling: Sampling, stop: frozenset[int]
) -> Iterator[list[int | None]]:
    """Yield one list per step with one token per prompt; None for a text that has ended with a stop token.

    Rows that have ended are removed from the batch. This does not change the other rows: a random number is drawn for
    every prompt in every step, used or not.
    """
    generator = None if sampling.seed is None else torch.Generator().manual_seed(sampling.seed)
    log_prob, state = read_prompts(model, prompts)
    seen = Seen(prompts, log_prob.shape[1], sampling.repetition_penalty)
    rows = torch.arange(len(prompts), device="cpu")  # the prompt of each row of the batch
    for step in range(max_new_tokens):
        uniform = torch.zeros(len(prompts), dtype=torch.float64, device="cpu")
        if not sampling.greedy:
            uniform = torch.rand(len(prompts), dtype=torch.float64, generator=generator, device="cpu")
        tokens = sampling.choose(seen.penalise(log_prob), uniform[rows])
        chosen: list[int | None] = [None] * len(prompts)
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            chosen[row] = token
        yield chosen
        unfinished = [i for i, token in enumerate(tokens.tolist()) if token not in stop]
        live = torch.tensor(unfinished, dtype=torch.int64, device="cpu")
        if step + 1 == max_new_tokens or not len(live):
            return
        if len(live) < len(rows):
            state, rows, tokens = select_rows(state, live), rows[live], tokens[live]
        seen.extend(live, tokens)
        log_prob, state = model(tokens[:, None], state, None)
