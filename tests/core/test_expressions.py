"""Cells from expressions: the text, and the derived gradient against autograd, on all paths."""

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch

from reference import assert_close, gradients
from trellisnet import TrellisClassifier, TrellisLM, TrellisNet
from trellisnet.core.cells import CELLS, AffineCell, ExpressionCell
from trellisnet.core.cells.definition import read_text
from trellisnet.core.cells.expressions import parse

LSTM = {
    "factor": "sigmoid(g2)",
    "offset": "sigmoid(g1) * tanh(g4)",
    "hidden": "sigmoid(g3) * tanh(m)",
    "biases": [0, 1, 0, 0],
}
GRU = {
    "factor": "sigmoid(g2)",
    "offset": "(1 - sigmoid(g2)) * tanh(g3 + sigmoid(g1) * g4)",
    "hidden": "m",
    "biases": [0, 0, 0, 0],
}
COUPLED = {"factor": "sigmoid(g1)", "offset": "(1 - sigmoid(g1)) * tanh(g3)", "hidden": "sigmoid(g2) * m"}
HIGHWAY = {"factor": "1 - sigmoid(g2)", "offset": "sigmoid(g2) * tanh(g1)", "hidden": "m"}
BUILT_IN = {"lstm": LSTM, "gru": GRU, "coupled": COUPLED, "highway": HIGHWAY}
STRANGE = {  # gates that several expressions read, ties of maxima, signs, memories read twice
    "shared": {"factor": "sigmoid(g1)", "offset": "tanh(g1 * g2)", "hidden": "max(m, g1) * sigmoid(m + g2)"},
    "ties": {"factor": "sigmoid(relu(g1))", "offset": "max(relu(g2), relu(g1))", "hidden": "max(m, m)"},
    "signs": {"factor": "1 - (1 - sigmoid(g1))", "offset": "1 - g2 * g2", "hidden": "1 - (g3 + tanh(1 - m)) * m"},
    "one gate": {"factor": "tanh(g1)", "offset": "g1", "hidden": "relu(m) + g1"},
    "bare": {"factor": "g1", "offset": "g2 + (1 - g2 * g1)", "hidden": "m * (1 - m)"},
}
ALL = {**BUILT_IN, **STRANGE}


def cell_of(name):
    return ExpressionCell(read_text(json.dumps(ALL[name])))


@pytest.mark.parametrize("with_memory", [True, False])
@pytest.mark.parametrize("scratch", ["own", "memory"])
@pytest.mark.parametrize("name", ALL)
def test_the_derived_gradient_is_that_of_autograd(name, scratch, with_memory):
    cell = cell_of(name)
    pre = torch.randn(5, 2, cell.gates, 3, requires_grad=True)
    memory = (torch.randn(5, 2, 3) * with_memory).requires_grad_()
    hidden, after = AffineCell.__call__(cell, pre, memory)
    gates, given = pre.detach().clone(), memory.detach() if with_memory else None
    hidden_out, memory_out = torch.empty(5, 2, 3), torch.empty(5, 2, 3)
    views = cell.views(gates)
    cell.forward_(views, given, hidden_out, memory_out)
    assert_close((hidden_out, memory_out), (hidden, after), 1e-14)
    grad_hidden, grad_memory = torch.randn(5, 2, 3), torch.randn(5, 2, 3)
    expected = torch.autograd.grad([hidden, after], [pre, memory], [grad_hidden, grad_memory])
    free = memory_out if scratch == "memory" else torch.full((5, 2, 3), float("nan"))
    cell.expose_backward_(views, memory_out, grad_hidden, grad_memory, free)
    before = grad_memory * cell.factor(views)
    cell.affine_backward_(views, given, grad_memory, (grad_hidden, free))
    assert_close((gates, before), expected, 1e-12)


@pytest.mark.parametrize("path", ["layers", "sweeps", "steps"])
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_text_that_says_the_same_as_a_built_in_cell_is_that_cell(name, path):
    options = {"num_layers": 3, "path": path, "weight_norm": True, "dilation": [1, 2]}
    torch.manual_seed(1)
    ours = TrellisNet(2, 4, cell=json.dumps(ALL[name]), **options)
    torch.manual_seed(1)
    theirs = TrellisNet(2, 4, cell=name, **options)
    assert_close(list(ours.parameters()), list(theirs.parameters()), 0)  # weight scale and biases
    x = torch.randn(7, 3, 2, requires_grad=True)
    results = []
    for net in (ours, theirs):
        y, state = net(x[:4])
        y2, _ = net(x[4:], state)
        out = torch.cat([y, y2])
        results.append((out, *torch.autograd.grad(out.square().sum(), [x, *net.parameters()])))
    assert_close(*results)


@pytest.mark.parametrize(("path", "options"), [
    ("layers", {"memory": "recompute"}),
    ("layers", {"groups": [2, 3]}),
    ("sweeps", {"groups": [3, 2]}),
    ("sweeps", {"memory": "recompute", "hidden_taps": 1}),
])  # fmt: skip
@pytest.mark.parametrize("name", STRANGE)
def test_the_engine_runs_it_as_ordinary_operations_do(name, path, options):
    net = TrellisNet(2, 5, num_layers=3, cell=cell_of(name), path=path, **options)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.2)  # products of what is not bounded explode, and rounding with them

    class Plain(AffineCell):
        gates, weight_scale, gate_biases = net.cell.gates, net.cell.weight_scale, net.cell.gate_biases
        affine, expose = net.cell.affine, net.cell.expose

    plain = TrellisNet(2, 5, num_layers=3, cell=Plain(), path=path, **options)
    plain.load_state_dict(net.state_dict())
    x = torch.randn(6, 2, 2, requires_grad=True)
    assert_close(net(x)[0], plain(x)[0])
    found, expected = gradients(net(x)[0], x, *net.parameters()), gradients(plain(x)[0], x, *plain.parameters())
    assert_close(found, expected)
    with torch.no_grad():  # a stream
        state, steps = None, []
        for step in x:
            y, state = net(step[None], state)
            steps.append(y)
    if path == "sweeps" or "memory" in options:
        assert_close(torch.cat(steps), net(x)[0])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies(copied):
    net = TrellisNet(2, 4, 2, cell=cell_of("shared"), weight_norm=True)
    x = torch.randn(5, 1, 2)
    assert_close(copied(net)(x)[0], net(x)[0], 0)
    assert copied(net).cell.definition == net.cell.definition


def test_a_file_is_embedded_in_what_is_saved(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("factor: sigmoid(g1)  # a\noffset: tanh(g2)\nhidden: max(m, g1)\n")
    lm = TrellisLM(9, 4, 8, 2, cell=str(file))
    assert lm.config["cell"] == lm.net.cell.definition.text
    assert lm.net.cell.definition.name == "mine"
    lm.save_pretrained(tmp_path / "model")
    file.unlink()
    ids = torch.randint(9, (2, 6))
    again = TrellisLM.from_pretrained(tmp_path / "model")
    assert_close(again.log_prob(ids), lm.log_prob(ids), 0)
    again.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again/config.json").read_text() == (tmp_path / "model/config.json").read_text()


def test_export(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.set_default_dtype(torch.float32)
    model = TrellisClassifier(3, 8, 2, num_classes=4, cell=json.dumps(STRANGE["shared"]))
    model.export(tmp_path / "model.onnx", length=5)  # compares the file's results with the model's
    assert (tmp_path / "model.onnx").is_file()


@pytest.mark.parametrize("text", [
    "g1 + (1 - m)", "(1 - g1) + m", "1 - (1 - g1)", "1 - (g1 + g2)", "(g1 + g2) * m", "g1 + (g2 + m)", "g1 + g2 + m",
    "g1 * (g2 * m)", "(1 - g1) * m", "max(g1, tanh(1 - g2 * m))", "1 - g1 * m",
])  # fmt: skip
def test_text_and_tree_agree(text):
    assert str(parse(text, "x")) == text
    assert parse(str(parse(text, "x")), "x") == parse(text, "x")


@pytest.mark.parametrize(("change", "message"), [
    ({"factor": "sigmoit(g1)"}, r"factor: unknown function 'sigmoit', did you mean 'sigmoid'\?"),
    ({"factor": "sigmoid(g1, g2)"}, "sigmoid takes 1 argument"),
    ({"gates": 4}, "gate g4 of 4 is not used"),
    ({"gates": 5}, "gates must be an integer from 1 to 4, got 5"),
    ({"offset": "tanh(g9)"}, "offset has an unknown name 'g9'"),
    ({"offset": "offset * tanh(g2)"}, "offset must not read 'offset': an expression reads gates.* no cycle"),
    ({"factor": "sigmoid(hidden)"}, "factor must not read 'hidden'"),
    ({"offset": "tanh(x)"}, "offset has an unknown name 'x'"),
    ({"factor": "sigmoid(g1 + m)"}, "factor must not read m"),
    ({"hidden": "sigmoid(g3)"}, "hidden must read the memory m"),
    ({"hidden": "tanh(tanh(tanh(tanh(tanh(tanh(tanh(m * g3)))))))"}, "hidden must have at most 6 nodes, got 8"),
    ({"hidden": "g3 - m"}, "g3 - m is not allowed"),
    ({"hidden": "2 * m"}, "2 is not allowed"),
    ({"hidden": "().__class__"}, "is not allowed"),
    ({"hidden": "m +"}, "is not an expression"),
    ({"hidden": 3}, "must be an expression"),
    ({"hiden": "m"}, r"unknown key 'hiden', did you mean 'hidden'\?"),
    ({"biases": [1]}, "biases must be 3 numbers"),
    ({"biases": ["a"]}, "biases must be a list of numbers"),
    ({"offset": None}, "must be an expression"),
])  # fmt: skip
def test_errors(change, message):
    values = {"factor": "sigmoid(g1)", "offset": "tanh(g2)", "hidden": "m * g3", **change}
    with pytest.raises(ValueError, match=message):
        TrellisNet(2, 3, 2, cell=json.dumps(values))


def test_errors_of_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cell nowhere\.yaml not found"):
        TrellisNet(2, 3, 2, cell="nowhere.yaml")
    file: Path = tmp_path / "cell.yaml"
    for text, message in (
        ("- 1", "must be a mapping"),
        ("a: [", "not valid YAML"),
        ("factor: g1", "offset is missing"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            TrellisNet(2, 3, 2, cell=str(file))


def test_default_biases_begin_by_remembering():
    assert cell_of("coupled").gate_biases == CELLS["coupled"].gate_biases
    assert cell_of("highway").gate_biases == CELLS["highway"].gate_biases
    assert cell_of("shared").gate_biases == (1.0, 0.0)
