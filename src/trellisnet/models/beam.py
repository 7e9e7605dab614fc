"""Beam search for a probable continuation of each prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trellisnet.models.body import select_rows
from trellisnet.models.generation import NextToken, Seen, read_prompts


@dataclass(frozen=True)
class Hypothesis:
    """A continuation and the sum of the log-probabilities of its tokens."""

    tokens: tuple[int, ...]
    total: float

    def score(self, length_penalty: float) -> float:
        """Return the sum divided by length ** length_penalty: with 0 the sum itself, with 1 the mean."""
        return normalised(self.total, len(self.tokens), length_penalty)


def normalised(total: float, length: int, length_penalty: float) -> float:
    """Return total / length ** length_penalty, for penalties of any size.

    >>> normalised(-8.0, 4, 0.5), abs(normalised(-8.0, 4, 1e40))
    (-4.0, 0.0)
    """
    return total * math.exp(-float(length_penalty) * math.log(length))


def beam_search(
    model: NextToken,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    beams: int,
    length_penalty: float,
    repetition_penalty: float,
    stop: frozenset[int],
) -> list[tuple[int, ...]]:
    """Return the best continuation found for each prompt.

    Each step extends the live hypotheses of a prompt by one token and ranks the extensions by log-probability. Those of
    the first `beams` extensions that end with a stop token are finished. The first `beams` extensions that do not end
    with a stop token are the live hypotheses of the next step.

    Args:
        model: maps tokens and a state to the log-probabilities of the next token.
        prompts: token ids, of any lengths.
        limits: maximum number of tokens of each continuation.
        beams: number of live hypotheses per prompt.
        length_penalty: a finished hypothesis is ranked by its sum divided by length ** length_penalty.
        repetition_penalty: see `Seen`.
        stop: ids of the tokens that end a continuation.
    """
    log_prob, state = read_prompts(model, prompts)
    seen = Seen(prompts, log_prob.shape[1], repetition_penalty)
    live = [[Hypothesis((), 0.0)] for _ in prompts]
    finished: list[list[Hypothesis]] = [[] for _ in prompts]
    for step in range(max(limits)):
        log_prob = seen.penalise(log_prob)
        parents: list[int] = []  # the batch row that each hypothesis of the next step extends
        first = 0
        for i, hypotheses in enumerate(live):
            rows = slice(first, first + len(hypotheses))
            first = rows.stop
            alive, ended, origins = _extend(hypotheses, log_prob[rows], beams, stop)
            finished[i] += ended if step + 1 < limits[i] else ended + alive
            best = max((h.score(length_penalty) for h in finished[i]), default=-float("inf"))
            # a total only falls, so no live hypothesis can exceed this score
            most = max((normalised(h.total, limits[i], length_penalty) for h in alive), default=-float("inf"))
            live[i] = alive if step + 1 < limits[i] and best < most else []
            parents += [rows.start + origin for origin in origins[: len(live[i])]]
        if not parents:
            break
        tokens = torch.tensor([h.tokens[-1] for hypotheses in live for h in hypotheses], device="cpu")
        order = torch.tensor(parents, device="cpu")
        seen.extend(order, tokens)
        log_prob, state = model(tokens[:, None], select_rows(state, order), None)
    return [max(ended, key=lambda h: h.score(length_penalty)).tokens for ended in finished]


def _extend(
    hypotheses: list[Hypothesis], log_prob: Tensor, beams: int, stop: frozenset[int]
) -> tuple[list[Hypothesis], list[Hypothesis], list[int]]:
    """Extend the hypotheses of one prompt by one token.

    Returns:
        The live hypotheses, the finished ones, and for each live one the index of the hypothesis that it extends.
    """
    totals = torch.tensor([h.total for h in hypotheses], dtype=torch.float64, device="cpu")
    scores = (totals[:, None] + log_prob).flatten()
    # at most len(hypotheses) * len(stop) extensions end with a stop token: `beams` others are among the first `enough`
    enough = min(beams + len(hypotheses) * len(stop), len(scores))
    best = scores.topk(enough)
    alive: list[Hypothesis] = []
    ended: list[Hypothesis] = []
    origins: list[int] = []
    for rank, (total, place) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
        origin, token = divmod(place, log_prob.shape[1])
        longer = Hypothesis((*hypotheses[origin].tokens, token), total)
        if token in stop:
            if rank < beams:
                ended.append(longer)
        elif len(alive) < beams:
            alive.append(longer)
            origins.append(origin)
    return alive, ended, origins
