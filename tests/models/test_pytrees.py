"""Results and states go through the tools that look for tensors in them."""

import dataclasses

import pytest
import torch
from torch.utils import _pytree as pytree

from reference import assert_close
from trellisnet import SequenceClassifier, TrellisClassifier, TrellisLM, TrellisNet, TrellisRegressor
from trellisnet.models.body import run_body


@pytest.fixture
def lm():
    return TrellisLM(11, 5, 8, 3, weight_norm=True)


def test_results_are_pytrees(lm):
    ids = torch.randint(11, (2, 6))
    out = lm(ids[:, :-1], ids[:, 1:])
    leaves, structure = pytree.tree_flatten(out)
    assert {id(out.loss), id(out.parts["main"]), id(out.state.h), id(out.state.c)} <= {id(leaf) for leaf in leaves}
    again = pytree.tree_unflatten(leaves, structure)
    assert again.loss is out.loss
    assert again.log_prob is None
    assert again.state.spans == out.state.spans
    halves = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor / 2, run_body(lm.net, torch.ones(4, 2, 5)))
    assert_close(2 * halves.output, lm.net(torch.ones(4, 2, 5))[0])


@pytest.mark.parametrize("kind", [TrellisClassifier, TrellisRegressor])
def test_a_whole_model_can_be_exported(kind):
    model = kind(3, 8, 2, 4).eval()
    x, batch = torch.randn(2, 4, 3), torch.export.Dim("batch")
    program = torch.export.export(model, (x,), dynamic_shapes={"x": {0: batch}})
    for size in (1, 2, 7):
        x = torch.randn(size, 4, 3)
        assert_close(program.module()(x).prediction, model(x).prediction)


def test_a_language_model_can_be_exported(lm):
    ids = torch.randint(11, (3, 6))
    out = torch.export.export(lm.eval(), (ids,)).module()(ids)
    assert_close(out.log_prob, lm(ids).log_prob)
    assert out.state.spans == lm(ids).state.spans


class _WithLengths(torch.nn.Module):
    def __init__(self, net, **options):
        super().__init__()
        self.net, self.options = net, options

    def forward(self, x, state, lengths):
        return self.net(x, state, lengths=lengths, **self.options)


@pytest.mark.parametrize(("path", "tail"), [("layers", None), ("layers", 2), ("sweeps", 2), ("steps", None)])
def test_lengths_are_a_tensor_of_an_exported_program(path, tail):
    net = TrellisNet(3, 6, 2, dilation=[1, 2] if path == "layers" else 1, path=path)
    state = net(torch.randn(4, 3, 3))[1].detach()
    state = state.repackage() if path == "layers" else state
    module, x = _WithLengths(net, tail=tail), torch.randn(5, 3, 3)
    program = torch.export.export(module, (x, state, torch.tensor([5, 2, 3]))).module()
    for lengths in ([5, 2, 3], [2, 2, 2], [4, 5, 3]):
        y, after = program(x, state, torch.tensor(lengths))
        expected, expected_after = net(x, state, lengths=lengths, tail=tail)
        assert_close(y, expected)
        if tail is None:
            following = torch.randn(3, 3, 3)
            assert_close(net(following, after)[0], net(following, expected_after)[0])


def test_lengths_of_a_body_that_does_not_know_tails():
    class Sums(torch.nn.Module):
        input_size = output_size = 3

        def forward(self, x, state=None):
            y = x.cumsum(0)
            return y, y[-1:]

    model = SequenceClassifier(Sums(), 2).eval()
    x, lengths = torch.randn(3, 5, 3), torch.tensor([5, 1, 4])
    program = torch.export.export(model, (x,), {"lengths": lengths}).module()
    assert_close(program(x, lengths=torch.tensor([2, 3, 5])).prediction, model(x, lengths=[2, 3, 5]).prediction)


def test_a_wrong_number_of_lengths_cannot_be_exported():
    with pytest.raises(ValueError, match=r"lengths must be 3 integers, one per sequence, got shape \(2,\)"):
        torch.export.export(_WithLengths(TrellisNet(3, 6, 3)), (torch.randn(5, 3, 3), None, torch.tensor([5, 2])))


def test_a_dynamic_time_axis_is_refused():
    net, x = TrellisNet(3, 6, 3), torch.randn(5, 3, 3)
    for steps in (torch.export.Dim("steps"), torch.export.Dim.AUTO):
        with pytest.raises(ValueError, match="time axis of x cannot be dynamic"):
            torch.export.export(net, (x,), dynamic_shapes={"x": {0: steps}})


@pytest.mark.filterwarnings("ignore")  # of torch and onnxscript
def test_a_dynamic_time_axis_is_no_fixed_one_in_an_onnx_file():
    """torch tries several ways to trace a net; one of them would write a file for five steps, and say nothing."""
    pytest.importorskip("onnxscript", reason="needs the extra export")
    net, x = TrellisNet(3, 6, 1).float(), torch.randn(5, 3, 3, dtype=torch.float32)
    shapes = {"x": {0: torch.export.Dim("steps")}}
    with pytest.raises(torch.onnx.errors.OnnxExporterError, match="time axis of x cannot be dynamic"):
        torch.onnx.export(net, (x,), dynamic_shapes=shapes, dynamo=True, verbose=False)


def test_a_state_is_no_frozen_dataclass(lm):
    """Lightning writes to the fields of copies of the dataclasses that a model returns."""
    state = lm(torch.randint(11, (2, 6))).state
    state.h = state.h.float()
    assert dataclasses.replace(state).h.dtype == torch.float32


def test_fabric(lm):
    fabric = pytest.importorskip("lightning.fabric", reason="needs lightning", exc_type=ImportError).Fabric(
        accelerator="cpu", devices=1, precision="bf16-mixed"
    )
    lm = lm.float()
    model, optimiser = fabric.setup(lm, torch.optim.SGD(lm.parameters(), 0.1))
    ids = torch.randint(11, (2, 6))
    out = model(ids[:, :-1], ids[:, 1:])
    out = model(ids[:, :-1], ids[:, 1:], out.state)
    fabric.backward(out.loss)
    optimiser.step()
    assert out.state.spans == lm(ids).state.spans


def test_accelerate(lm):
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate", exc_type=ImportError)
    lm = lm.float()
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimiser = accelerator.prepare(lm, torch.optim.SGD(lm.parameters(), 0.1))
    ids = torch.randint(11, (2, 6))
    out = model(ids[:, :-1], ids[:, 1:])
    out = model(ids[:, :-1], ids[:, 1:], accelerate.utils.send_to_device(out.state, "cpu"))
    accelerator.backward(out.loss)
    optimiser.step()
    assert accelerator.gather(out.loss).isfinite()
