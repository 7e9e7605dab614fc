"""Fuzz of bodies: their constructors, and calls with states, lengths, tails, depths and paths."""

from __future__ import annotations

import math
from typing import Any

import torch

from fuzz.harness import Draw, Report, finite, judge
from fuzz.options import body_kinds, draw_options, spoil
from trellisnet import TrellisNet, as_attention, from_rnn
from trellisnet.models.bodies import BODIES, make_body
from trellisnet.models.body import run_body

CALL = {"tail": "size", "depth": "size", "lengths": "sizes", "path": "text", "aux": "flag"}


def bodies(draw: Draw, report: Report) -> None:
    """Build any body, and call it twice: the second call continues from the state of the first."""
    name = draw.choice(["trellis", draw.choice(list(BODIES))])
    kinds, width = body_kinds(name), draw.choice([2, 4, 6])
    options = draw_options(draw, kinds, {"input_size": draw.size(3), "hidden_size": width, "num_layers": draw.size(3)})
    wrong = spoil(draw, options, kinds)
    what = f"make_body({name!r}, {options})"
    body: Any = judge(report, what, lambda: make_body(name, **options), wrong=wrong, names=options)
    if body is None or body.hidden_size > 100:
        return
    steps, batch = draw.randint(1, 7), draw.randint(1, 3)
    x = torch.randn(steps, batch, body.input_size)
    body.train(draw.chance(0.3))
    if body.training and getattr(body, "batch_norm", False):
        return  # it needs more than one value per channel

    def call() -> None:
        lengths = None if draw.chance(0.6) else [draw.randint(1, steps) for _ in range(batch)]
        out = run_body(body, x, lengths=lengths)
        finite(out.output, (steps, batch, body.output_size))
        again = run_body(body, x, out.state)
        finite(again.output, (steps, batch, body.output_size))
        if body.training:
            again.output.sum().backward()

    judge(report, f"{what} on {tuple(x.shape)}", call)


def calls(draw: Draw, report: Report) -> None:
    """Call a trellis net with any options of its forward pass."""
    torch.manual_seed(0)
    net: TrellisNet = TrellisNet(
        2, 4, 3, dilation=draw.choice([1, [1, 2]]), cell=draw.choice(["tanh", "lstm", "gru"]), aux_every=1
    )
    net = draw.choice([net, net, net.attend(8, 2), as_attention(net)])
    steps, batch = draw.randint(1, 6), draw.randint(1, 3)
    options: dict[str, Any] = {}
    if draw.chance(0.4):
        options["lengths"] = [draw.randint(1, steps) for _ in range(batch)]
    if draw.chance(0.4):
        options["tail"] = draw.randint(1, steps)
    if draw.chance(0.4):
        options["depth"] = draw.choice([1, 2, 5, "converged"])
    if draw.chance(0.3):
        options["path"] = draw.choice(["layers", "sweeps", "steps"])
    if draw.chance(0.3):
        options["aux"] = draw.chance(0.5)
    wrong = spoil(draw, options, CALL)
    if wrong == "path" and options["path"] is None:
        wrong = None  # the net's own
    x = draw.choice([torch.randn(steps, batch, 2)] * 6 + [_odd_input(draw)])
    if not (isinstance(x, torch.Tensor) and x.shape == (steps, batch, 2) and x.is_floating_point()):
        wrong = None  # the message may name x instead
    state = net(torch.randn(4, draw.choice([batch, batch, batch, 5]), 2))[1] if draw.chance(0.3) else None
    if draw.chance(0.03):
        state = draw.anything()
        wrong = None

    def call() -> None:
        y, _, *rest = net(x, state, **options)
        if isinstance(x, torch.Tensor) and x.dim() == 3 and bool(torch.isfinite(x).all()):
            shape = (options.get("tail") or len(x), x.shape[1], 4)
            finite(y, shape)
            assert len(rest) == bool(options.get("aux")), "aux is missing, or not wanted"

    judge(
        report,
        f"{type(net).__name__}(...)({_described(x)}, {_described(state)}, {options})",
        call,
        wrong=wrong,
        names=[*options, "state"],
    )


def _odd_input(draw: Draw) -> Any:
    shapes = [(0, 1, 2), (3, 0, 2), (3, 2), (3,), (), (2, 3, 4, 2), (3, 2, 0), (3, 2, 1), (3, 2, 2)]
    kind = draw.choice([torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64, torch.float16])
    return draw.choice([torch.zeros(draw.choice(shapes), dtype=kind), draw.anything()])


def _described(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)[:80]


def conversions(draw: Draw, report: Report) -> None:
    """`from_rnn`, `attend` and `as_attention`."""
    which = draw.choice(["from_rnn", "attend", "as_attention"])
    if which == "from_rnn":
        kind = draw.choice([torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
        rnn: Any = kind(2, 3, draw.randint(1, 2), bidirectional=draw.chance(0.1), batch_first=draw.chance(0.2))
        rnn = draw.choice([rnn] * 8 + [[rnn], [], draw.anything()])
        options: dict[str, Any] = {"horizon": draw.randint(1, 6)}
        fits = isinstance(rnn, torch.nn.RNNBase) and not rnn.bidirectional
        wrong = spoil(draw, options, {"horizon": "size", "path": "text"}) if fits else None
        if wrong == "horizon" and options["horizon"] is None:
            wrong = None

        def call() -> None:
            net = from_rnn(rnn, **options)
            if options.get("path") != "steps" and isinstance(rnn, torch.nn.RNNBase) and not rnn.batch_first:
                x = torch.randn(options["horizon"], 1, 2)
                assert torch.allclose(net(x)[0], rnn(x)[0], atol=1e-5), "not equal to the RNN"

        judge(report, f"from_rnn({rnn}, {options})", call, wrong=wrong, names=options)
        return
    net = TrellisNet(2, 4, 2, dilation=draw.choice([1, 2]), path=draw.choice(["layers", "sweeps", "steps"]))
    x = torch.randn(5, 1, 2)
    if which == "attend":
        options = {"window": draw.choice([None, 3, 8]), "heads": draw.choice([1, 2, 4])}
        wrong = spoil(draw, options, {"window": "size", "heads": "size"}) if net.path != "steps" else None
    else:
        options = {"beta": draw.choice([None, 50.0])}
        wrong = spoil(draw, options, {"beta": "positive"}) if net.path == "layers" else None

    def convert() -> None:
        other = net.attend(**options) if which == "attend" else as_attention(net, **options)
        y, expected = other(x)[0], net(x)[0]
        finite(y, tuple(expected.shape))
        if options.get("beta") is None or (options["beta"] >= 50 and math.isfinite(options["beta"])):
            assert torch.allclose(y, expected, atol=1e-5), "not equal to the trellis"

    judge(report, f"{which} of a net with path {net.path}: {options}", convert, wrong=wrong, names=options)
