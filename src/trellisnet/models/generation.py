"""Choosing the next word, again and again, on a state that goes along."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from trellisnet.core.checks import positive, positive_int
from trellisnet.models.body import State, select_rows

# what generation needs of a model: words (B, T) that follow a state, and where they end if not all at T, to the
# log-probabilities (B, V) of the word after each, and the state there. Words and log-probabilities are on the CPU, the
# latter in double precision, wherever the model is.
NextWords = Callable[[Tensor, State, Sequence[int] | None], tuple[Tensor, State]]


@dataclass(frozen=True)
class Sampling:
    """How a word is chosen from its probabilities.

    Args:
        temperature: what log-probabilities are divided by; None: 1 if any other option below but the penalty is given,
            else greedy, the most probable word always.
        top_k: only the k most probable words.
        top_p: only the fewest most probable words that together have the probability p.
        repetition_penalty: above 1, words that are in the text already become rarer; see `Seen`.
        seed: of the random numbers; None: torch's global generator. Every row of a batch has numbers of its own, so the
            same prompt gets other words in another row.
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
            positive_int("seed", self.seed, minimum=0)

    @property
    def greedy(self) -> bool:
        """Whether the most probable word is always chosen."""
        return all(option is None for option in (self.temperature, self.top_k, self.top_p, self.seed))

    def choose(self, log_prob: Tensor, numbers: Tensor) -> Tensor:
        """A word a row: log-probabilities (B, V) and random numbers in [0, 1) (B) to (B)."""
        if self.greedy:
            return log_prob.argmax(dim=1)
        best = log_prob.max(dim=1, keepdim=True).values  # subtracted, so that no temperature takes all away
        scores = (log_prob - best) / (self.temperature or 1.0)
        if self.top_k is not None and self.top_k < scores.shape[1]:
            least = scores.topk(self.top_k, dim=1).values[:, -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if self.top_p is not None:
            ordered, words = scores.softmax(dim=1).sort(dim=1, descending=True, stable=True)
            before = ordered.cumsum(dim=1) - ordered  # what the more probable words have together
            late = torch.empty_like(before, dtype=torch.bool).scatter_(1, words, before >= self.top_p)
            late.scatter_(1, words[:, :1], False)
            scores = scores.masked_fill(late, -torch.inf)
        # the word in whose stretch of the line from 0 to 1 the number falls; a word without probability has no stretch
        ends = scores.softmax(dim=1).cumsum(dim=1)
        return torch.searchsorted(ends, numbers[:, None] * ends[:, -1:], right=True).squeeze(1)


class Seen:
    """Which words each text has, for the repetition penalty (Keskar et al. 2019).

    A word's score is by how much its log-probability is above the mean of all words'. A score of a seen word is divided
    by the penalty if it is positive, and multiplied by it if it is negative.
    """

    def __init__(self, texts: Sequence[Sequence[int]], vocab_size: int, penalty: float) -> None:
        self.penalty = penalty
        self.words: Tensor | None = None
        if penalty != 1:
            self.words = torch.zeros(len(texts), vocab_size, dtype=torch.bool, device="cpu")
            for row, text in enumerate(texts):
                self.words[row, list(text)] = True

    def penalise(self, log_prob: Tensor) -> Tensor:
        """Log-probabilities (B, V) under the penalty; they no longer sum to one."""
        if self.words is None:
            return log_prob
        mean = log_prob.mean(dim=1, keepdim=True)
        score = log_prob - mean
        lowered = torch.where(score > 0, score / self.penalty, score * self.penalty)
        return torch.where(self.words, mean + lowered, log_prob)

    def go_on(self, rows: Tensor, words: Tensor) -> None:
        """Keep some rows, in the order given, and add a word to each."""
        if self.words is not None:
            self.words = self.words[rows].scatter(1, words[:, None], True)


def read_prompts(model: NextWords, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, State]:
    """Log-probabilities and state after texts of any lengths, read as one batch."""
    ids = pad_sequence([torch.tensor(prompt, device="cpu") for prompt in prompts], batch_first=True)
    lengths = [len(prompt) for prompt in prompts]
    return model(ids, None, lengths if min(lengths) < max(lengths) else None)


def stream(
    model: NextWords, prompts: Sequence[Sequence[int]], max_new_tokens: int, sampling: Sampling, stop: frozenset[int]
) -> Iterator[list[int | None]]:
    """Every step's words, one a prompt, as they are chosen; None for texts that have ended with a stop word.

    The rows that have ended are computed no longer, and change nothing for the others: every row has a random
    number in every step, used or not.
    """
    generator = None if sampling.seed is None else torch.Generator().manual_seed(sampling.seed)
    log_prob, state = read_prompts(model, prompts)
    seen = Seen(prompts, log_prob.shape[1], sampling.repetition_penalty)
    rows = torch.arange(len(prompts), device="cpu")  # the prompts that the rows of the batch belong to
    for step in range(max_new_tokens):
        numbers = torch.zeros(len(prompts), dtype=torch.float64, device="cpu")
        if not sampling.greedy:
            numbers = torch.rand(len(prompts), dtype=torch.float64, generator=generator, device="cpu")
        words = sampling.choose(seen.penalise(log_prob), numbers[rows])
        chosen: list[int | None] = [None] * len(prompts)
        for row, word in zip(rows.tolist(), words.tolist(), strict=True):
            chosen[row] = word
        yield chosen
        left = [i for i, word in enumerate(words.tolist()) if word not in stop]
        going = torch.tensor(left, dtype=torch.int64, device="cpu")
        if step + 1 == max_new_tokens or not len(going):
            return
        if len(going) < len(rows):
            state, rows, words = select_rows(state, going), rows[going], words[going]
        seen.go_on(going, words)
        log_prob, state = model(words[:, None], state, None)
