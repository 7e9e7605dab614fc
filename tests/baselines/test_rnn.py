"""The RNN bodies against loops written from the equations."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from loops import assert_chunks_equal_the_whole, assert_equals_loop, assert_padding_changes_nothing
from reference import assert_close, gradients
from trellisnet.baselines.melis import MelisLstmBody
from trellisnet.baselines.rnn import GruBody, LstmBody
from trellisnet.models.body import run_body
from trellisnet.models.build import build_language_model
from trellisnet.models.sizing import width_for

BODIES = [LstmBody, GruBody, MelisLstmBody]
DROPOUTS = [
    {"dropout": 0.3},
    {"dropout": 0.3, "variational": True},
    {"hidden_dropout": 0.4},
    {"weight_dropout": 0.5},
    {"dropout": 0.2, "variational": True, "hidden_dropout": 0.4, "weight_dropout": 0.5, "skip": True},
]


def slow(body, x, state):
    """Every layer, step by step. In training mode the masks are drawn as the body draws them, layer by layer."""
    p = (body.dropout, body.weight_dropout, body.hidden_dropout) if body.training else (0.0, 0.0, 0.0)
    stacks, states = ([body.rnn], [state]) if body.last is None else ([body.rnn, body.last], state)
    ends, total = [[] for _ in stacks], 0
    both = zip(stacks, states, ends, strict=True)
    layers = [(rnn, layer, given, end) for rnn, given, end in both for layer in range(rnn.num_layers)]
    for number, (rnn, layer, given, end) in enumerate(layers):
        if number:
            x = x * F.dropout(torch.ones_like(x[:1] if body.variational else x), p[0])
        w, u = (getattr(rnn, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh"))
        b, v = (getattr(rnn, f"{name}_l{layer}") if body.bias else 0 for name in ("bias_ih", "bias_hh"))
        u = F.dropout(u, p[1])
        h, c = (tensor[layer] for tensor in given) if isinstance(given, tuple) else (given[layer], None)
        mask = F.dropout(torch.ones_like(h), p[2])
        steps = []
        for row in x:
            pre, past = row @ w.t() + b, (h * mask) @ u.t() + v
            if isinstance(body, LstmBody):
                i, f, g, o = (pre + past).chunk(4, -1)
                i, f = i.sigmoid(), f.sigmoid()
                c = f * c + (torch.minimum(i, 1 - f) if isinstance(body, MelisLstmBody) else i) * g.tanh()
                h = o.sigmoid() * c.tanh()
            else:
                (r, z, n), (r_past, z_past, n_past) = pre.chunk(3, -1), past.chunk(3, -1)
                z = (z + z_past).sigmoid()
                h = (1 - z) * (n + (r + r_past).sigmoid() * n_past).tanh() + z * h
            steps.append(h)
        x = torch.stack(steps)
        total = total + x if body.skip else x
        end.append((h, c))
    y = total if body.down is None else total @ body.down.weight.t() + body.down.bias
    rows = [[torch.stack(kind) for kind in zip(*end, strict=True) if kind[0] is not None] for end in ends]
    after = [tuple(each) if isinstance(body, LstmBody) else each[0] for each in rows]
    return y, after[0] if body.last is None else tuple(after)


def by_hand(body, x):
    """One torch module per layer, with the weights of the body: the output, and the parameters of all layers."""
    parameters = []
    for rnn in [body.rnn, body.last]:
        for layer in range(rnn.num_layers):
            own = [parameter for name, parameter in rnn.named_parameters() if name.endswith(f"_l{layer}")]
            alone = body.kind(own[0].shape[1], rnn.hidden_size, bias=body.bias)
            names = [name for name, _ in alone.named_parameters()]
            x, _ = torch.func.functional_call(alone, dict(zip(names, own, strict=True)), (x,))
            parameters += own
    return x, parameters


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {}),
        (7, 3, {"num_layers": 2, "output_size": 4}),
        (5, 1, {"num_layers": 3, "skip": True}),
        (5, 2, {"num_layers": 2, "bias": False, "skip": True}),
        (6, 2, {"num_layers": 3, "skip": False, "last_size": 4}),
        (1, 1, {"num_layers": 2, "skip": False, "last_size": 9, "output_size": 5, "bias": False}),
    ],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(kind, steps, batch, options):
    assert_equals_loop(kind(3, hidden_size=6, **options), slow, steps, batch)


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("options", DROPOUTS)
@pytest.mark.parametrize("training", [True, False])
def test_dropouts_are_those_of_the_equations(kind, options, training):
    assert_equals_loop(kind(3, hidden_size=6, num_layers=3, **options).train(training), slow)


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("options", [each for each in DROPOUTS[1:] if "skip" not in each])
def test_dropouts_before_and_in_a_narrower_last_layer(kind, options):
    assert_equals_loop(kind(3, hidden_size=6, **{"num_layers": 3, "skip": False, "last_size": 4, **options}), slow)


@pytest.mark.parametrize("kind", [LstmBody, GruBody])
@pytest.mark.parametrize("options", [{}, {"bias": False}])
def test_a_narrower_last_layer_equals_a_stack_of_torch_modules(kind, options):
    body, x = kind(5, hidden_size=8, num_layers=3, last_size=5, **options), torch.randn(9, 3, 5, requires_grad=True)
    assert (body.output_size, body.down) == (5, None)
    y, _ = body(x)
    expected, parameters = by_hand(body, x)
    assert len(parameters) == len(list(body.parameters()))
    assert_close(y, expected)
    assert_close(gradients(y, x, *parameters), gradients(expected, x, *parameters))


def test_a_tied_language_model_reads_a_last_layer_of_the_width_of_its_embedding():
    """AWD-LSTM on word PTB: embedding and last layer of 400, the others of 1150, and 24 million parameters."""
    with torch.device("meta"):
        model = build_language_model("lstm", 10_000, 400, hidden_size=1150, num_layers=3, last_size=400)
    lstm = sum(4 * (n * (i + n) + 2 * n) for i, n in [(400, 1150), (1150, 1150), (1150, 400)])
    assert model.num_parameters == lstm + 10_000 * 400 + 10_000
    assert model.net.down is None


def test_a_width_for_a_number_of_parameters_keeps_the_last_layer():
    def build(width):
        return build_language_model("lstm", 50, 20, hidden_size=width, num_layers=3, last_size=20)

    for budget in (20e3, 1e6):
        model = build(width_for(build, budget))
        assert model.num_parameters == pytest.approx(budget, rel=0.03)
        assert model.net.last.hidden_size == 20


@pytest.mark.parametrize("kind", BODIES)
def test_dropout_changes_no_parameter_and_nothing_in_evaluation(kind):
    body, x = kind(3, hidden_size=6, num_layers=2, weight_dropout=0.5, hidden_dropout=0.5), torch.randn(5, 2, 3)
    before = [parameter.clone() for parameter in body.parameters()]
    assert not torch.equal(body(x)[0], body(x)[0])
    assert torch.equal(body.eval()(x)[0], body(x)[0])
    assert all(map(torch.equal, before, body.parameters()))


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("options", [{}, {"skip": True}, {"skip": False, "last_size": 5}])
def test_chunks_equal_the_whole(kind, options):
    assert_chunks_equal_the_whole(kind(3, hidden_size=6, num_layers=2, **options))


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("options", [{}, {"skip": True}, {"skip": False, "last_size": 5}])
def test_one_call_for_sequences_of_unequal_lengths(kind, options):
    assert_padding_changes_nothing(kind(3, hidden_size=6, num_layers=2, output_size=4, **options))


@pytest.mark.parametrize("options", DROPOUTS[1:])  # the masks of the first depend on the number of steps
def test_padding_changes_nothing_under_dropout(options):
    """A sequence's state at its end is that of a shorter call with the same masks."""
    body, x = LstmBody(3, hidden_size=6, num_layers=2, **options), torch.randn(9, 2, 3)
    torch.manual_seed(1)
    y, state = body(x, lengths=[9, 4])
    torch.manual_seed(1)
    shorter, after = body(x[:4])
    assert_close(y[:4], shorter)
    assert not y[4:, 1].any()
    assert_close([tensor[:, 1] for tensor in state], [tensor[:, 1] for tensor in after])


@pytest.mark.parametrize("kind", BODIES)
def test_the_last_step_of_each_sequence(kind):
    body, x, lengths = kind(3, hidden_size=6, output_size=4), torch.randn(9, 3, 3), [9, 1, 4]
    y, _ = body(x, lengths=lengths)
    last = run_body(body, x, lengths=lengths, tail=1).output
    assert_close(last[0], torch.stack([y[n - 1, row] for row, n in enumerate(lengths)]))


@pytest.mark.parametrize("kind", BODIES)
def test_the_start_of_our_own_is_the_default(kind):
    body = kind(3, hidden_size=100)
    assert body.rnn.weight_hh_l0.abs().max() > 0.19  # torch's bound is 0.1
    biases = body.rnn.bias_ih_l0 + body.rnn.bias_hh_l0
    assert biases.sum() == (0 if kind is GruBody else 100)  # the forget gate begins open
    torch.manual_seed(1)
    body = kind(3, hidden_size=100, init="torch")
    torch.manual_seed(1)
    assert torch.equal(body.rnn.weight_hh_l0, (nn.GRU if kind is GruBody else nn.LSTM)(3, 100).weight_hh_l0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hidden_size": 0}, ValueError, "hidden_size must be an integer >= 1, got 0"),
        ({"hidden_size": 4, "num_layers": "2"}, TypeError, "num_layers must be an integer >= 1, got '2'"),
        ({"hidden_size": 4, "dropout": 0.1}, ValueError, "dropout acts between layers: got dropout=0.1"),
        ({"hidden_size": 4, "bias": "false"}, TypeError, "bias must be True or False, got 'false'"),
        ({"hidden_size": 4, "init": "torhc"}, ValueError, "did you mean 'torch'"),
        ({"hidden_size": 4, "weight_dropout": 1.5}, ValueError, r"weight_dropout must be in \[0, 1\), got 1.5"),
        ({"hidden_size": 4, "hidden_dropout": "0"}, TypeError, r"hidden_dropout must be a number in \[0, 1\), got '0'"),
        ({"hidden_size": 4, "skip": "yes"}, TypeError, "skip must be True or False, got 'yes'"),
        ({"hidden_size": 4, "variational": 1}, TypeError, "variational must be True or False, got 1"),
        ({"hidden_size": 4, "last_size": 0}, ValueError, "last_size must be an integer >= 1, got 0"),
        (
            {"hidden_size": 4, "last_size": 2},
            ValueError,
            "last_size needs num_layers >= 2 and skip=False: got last_siz",
        ),
        ({"hidden_size": 4, "num_layers": 2, "last_size": 2, "skip": True}, ValueError, "num_layers=2 and skip=True"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        LstmBody(3, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"lengths": [3]}, "lengths must be 2 integers, one per sequence, got 1"),
        ({"lengths": [3, 0]}, r"lengths\[1\] must be an integer >= 1, got 0"),
        ({"lengths": [3, 9]}, r"lengths\[1\] must lie in 1 .. 4 \(the steps of x\), got 9"),
        ({"lengths": [4, 2], "tail": 3}, r"tail must be at most 2 \(the shortest sequence\), got 3"),
        ({"depth": 2}, "depth is no option of the body LstmBody: got depth=2"),
    ],
)
def test_bad_calls_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        run_body(LstmBody(3, hidden_size=4), torch.randn(4, 2, 3), **call)
