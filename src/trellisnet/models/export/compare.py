"""Run an exported file, and compare it with the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from trellisnet.models.body import run_body
from trellisnet.models.export.programs import Program
from trellisnet.models.pretrained import Pretrained

Run = Callable[[dict[str, Tensor]], dict[str, Tensor]]  # a loaded file: inputs by name to outputs by name
BATCHES = (1, 2, 7)
STEPS = 60  # of a stream


def largest_difference(model: Pretrained, program: Program, run: Run) -> float:
    """Run a file on random input in batches of several sizes; return the largest difference of a result or a state.

    A file with one step streams a sequence; the model reads it in one call. A difference that is not a number is the
    largest.
    """
    generator = torch.Generator().manual_seed(0)
    with model.reading():
        found = [each for batch in BATCHES for each in _differences(model, program, run, batch, generator)]
    return float(torch.stack(found).max())


def _differences(model: Any, program: Program, run: Run, batch: int, generator: torch.Generator) -> list[Tensor]:
    steps = STEPS if program.length is None else program.length
    place = next(model.parameters())
    if program.is_language:
        given = torch.randint(model.vocab_size, (batch, steps), generator=generator).to(place.device)
    else:
        given = torch.randn(batch, steps, model.net.input_size, generator=generator).to(place)
    lengths = None
    if program.length is None:
        found = _stream(program, run, given)
    else:
        name, *others = program.inputs
        inputs = {name: given}
        if others:
            lengths = torch.randint(1, steps + 1, (batch,), generator=generator)
            inputs["lengths"] = lengths
        found = list(run(inputs).values())
    expected = _expected(model, program, given, lengths)
    if lengths is not None and program.each_step:  # results beyond the ends mean nothing
        inside = torch.arange(steps) < lengths[:, None]
        found[0], expected[0] = found[0].cpu()[inside], expected[0].cpu()[inside]
    pairs = zip(found, expected, strict=True)
    return [(ours.cpu() - theirs.cpu()).abs().max() for ours, theirs in pairs if ours.numel()]


def _stream(program: Program, run: Run, given: Tensor) -> list[Tensor]:
    """The results of all steps, and the state after the last."""
    (name, *_), state, results = program.inputs, program.zero_state(len(given)), []
    for step in given.unbind(1):
        result, *after = run({name: step, **state}).values()
        results.append(result)
        state = dict(zip(state, after, strict=True))
    return [torch.stack(results, 1), *state.values()]


def _expected(model: Any, program: Program, given: Tensor, lengths: Tensor | None) -> list[Tensor]:
    """The same of the model itself, in one call."""
    whole = program.each_step or program.length is None
    if not whole:
        return [model(given, lengths=lengths).prediction]
    if program.is_language:
        out = model.features(given, lengths=lengths)
        values = model.head.log_prob(out.output)
    else:
        out = run_body(model.net, given.transpose(0, 1), lengths=lengths)
        values = model.shaped(model.readout(out.output))
    return [values.transpose(0, 1), *(leaf for leaf in pytree.tree_leaves(out.state) if isinstance(leaf, Tensor))]
