"""Beam search: the most probable continuation that a search of bounded width finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trellisnet.models.body import select_rows
from trellisnet.models.generation import NextWords, Seen, read_prompts


@dataclass(frozen=True)
class Hypothesis:
    """A continuation and the sum of its words' log-probabilities."""

    words: tuple[int, ...]
    total: float

    def score(self, length_penalty: float) -> float:
        """The sum over a power of the length: with 0 the sum itself, with 1 the mean."""
        return self.total / float(len(self.words) ** length_penalty)


def beam_search(
    model: NextWords,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    beams: int,
    length_penalty: float,
    repetition_penalty: float,
    stop: frozenset[int],
) -> list[tuple[int, ...]]:
    """The best continuation found of every prompt.

    In every step the best one-word continuations of a prompt's live hypotheses are looked at, in order. Among the first
    `beams` of them, those that end with a stop word are finished; the first `beams` that do not, live on.
    """
    log_prob, state = read_prompts(model, prompts)
    seen = Seen(prompts, log_prob.shape[1], repetition_penalty)
    live = [[Hypothesis((), 0.0)] for _ in prompts]
    finished: list[list[Hypothesis]] = [[] for _ in prompts]
    for step in range(max_new_tokens):
        log_prob = seen.penalise(log_prob)
        parents: list[int] = []  # the row that each hypothesis of the next step continues
        first = 0
        for i, hypotheses in enumerate(live):
            rows = slice(first, first + len(hypotheses))
            first = rows.stop
            live[i], done, origins = _continue(hypotheses, log_prob[rows], beams, stop)
            finished[i] += done
            best = max((h.score(length_penalty) for h in finished[i]), default=-float("inf"))
            # a total only falls, so this is the best that a live hypothesis can still become
            if best >= max((h.total / max_new_tokens**length_penalty for h in hypotheses), default=-float("inf")):
                live[i] = []
            parents += [rows.start + origin for origin in origins[: len(live[i])]]
        if not parents or step + 1 == max_new_tokens:
            break
        words = torch.tensor([h.words[-1] for hypotheses in live for h in hypotheses], device="cpu")
        order = torch.tensor(parents, device="cpu")
        seen.go_on(order, words)
        log_prob, state = model(words[:, None], select_rows(state, order), None)
    return [
        max(done + going, key=lambda h: h.score(length_penalty)).words
        for done, going in zip(finished, live, strict=True)
    ]


def _continue(
    hypotheses: list[Hypothesis], log_prob: Tensor, beams: int, stop: frozenset[int]
) -> tuple[list[Hypothesis], list[Hypothesis], list[int]]:
    """One step of one prompt: hypotheses that live on, those that are finished, and the parents of the former."""
    totals = torch.tensor([h.total for h in hypotheses], dtype=torch.float64, device="cpu")
    scores = (totals[:, None] + log_prob).flatten()
    # every hypothesis can end in so many ways at most, so these are enough to leave `beams` that do not
    enough = min(beams + len(hypotheses) * len(stop), len(scores))
    best = scores.topk(enough)
    going: list[Hypothesis] = []
    done: list[Hypothesis] = []
    origins: list[int] = []
    for rank, (total, place) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
        origin, word = divmod(place, log_prob.shape[1])
        longer = Hypothesis((*hypotheses[origin].words, word), total)
        if word in stop:
            if rank < beams:
                done.append(longer)
        elif len(going) < beams:
            going.append(longer)
            origins.append(origin)
    return going, done, origins
