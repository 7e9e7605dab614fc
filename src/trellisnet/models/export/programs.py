"""A model as a function of named tensors, which is what a file can hold."""

from __future__ import annotations

import copy
import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from trellisnet.core.checks import positive_int
from trellisnet.models.body import BATCH_DIM, State, accepts, run_body
from trellisnet.models.dropout import embed
from trellisnet.models.language import LanguageModel
from trellisnet.models.pretrained import Pretrained
from trellisnet.models.sequence_model import SequenceModel

Shape = list[int | str]  # "batch" is the dynamic dimension
EXAMPLES = 3  # sequences of the example batch; torch treats 0 and 1 in a special way


class Program(nn.Module):
    """One step of a stream, or a sequence of a stated length.

    A step takes the input of one step and the tensors of a state, and returns the result and the next state. A sequence
    starts from no state; it also returns the state at its end, if the model predicts at every step.

    Args:
        model: a language model or a model of sequences, in evaluation mode and without parametrisations.
        length: number of steps of a sequence; None: one step with its state.
        lengths: sequences have a further input, the length of each.
    """

    def __init__(self, model: Any, length: int | None, lengths: bool) -> None:
        super().__init__()
        self.model, self.length, self.with_lengths = model, length, lengths
        self.is_language = isinstance(model, LanguageModel)
        self.each_step = self.is_language or model.each_step
        self.pooling = getattr(model, "pooling", None)
        self.names, self.structure, self.leaves = _state_form(model.net, length is None)
        self.examples = self._examples()
        with torch.no_grad():
            results = self(*self.examples.values())
        state = [f"next_{name}" for name in self.names] if len(results) > 1 else []
        names = ["log_prob" if self.is_language else "prediction", *state]
        self.inputs = {name: _shape(name, tensor) for name, tensor in self.examples.items()}
        self.outputs = {name: _shape(name, tensor) for name, tensor in zip(names, results, strict=True)}

    def _examples(self) -> dict[str, Tensor]:
        where: dict[str, Any] = {"device": next(self.model.parameters()).device}
        steps = () if self.length is None else (self.length,)
        if self.is_language:
            examples = {"ids": torch.zeros(EXAMPLES, *steps, dtype=torch.int64, **where)}
        else:
            examples = {"x": torch.zeros(EXAMPLES, *steps, self.model.net.input_size, **where)}
        if self.length is None:
            return {**examples, **self.zero_state(EXAMPLES)}
        if self.with_lengths:
            examples["lengths"] = torch.full((EXAMPLES,), self.length, **where)
        return examples

    def zero_state(self, batch: int) -> dict[str, Tensor]:
        """The state at the start of `batch` sequences, by the names of its tensors."""
        return {
            name: tensor.new_zeros(tensor.shape[0], batch, *tensor.shape[2:]) for name, tensor in self.names.items()
        }

    def vectors(self, given: Tensor) -> Tensor:
        """The input of the body (T, B, C)."""
        steps_first = given.unsqueeze(0) if self.length is None else given.transpose(0, 1)
        return embed(steps_first, self.model.embedding.weight) if self.is_language else steps_first

    def read_out(self, y: Tensor) -> Tensor:
        """The result at each step (T, B, ...) of an output (T, B, D)."""
        flat = y.flatten(0, 1)  # a matrix: its product with a transposed weight needs no transposed copy in a file
        values = self.model.head.log_prob(flat) if self.is_language else self.model.shaped(self.model.readout(flat))
        steps: Tensor = values.unflatten(0, (y.shape[0], -1))
        return steps

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the result, and the tensors of the next state; the arguments are in the order of `inputs`."""
        given, *others = tensors
        state, lengths = None, None
        if self.length is None:
            state = self._state(others)
        elif self.with_lengths:
            (lengths,) = others
        whole = self.each_step or self.length is None
        tail = None if whole or self.pooling is not None else 1
        out = run_body(self.model.net, self.vectors(given), state, lengths=lengths, tail=tail)
        output = out.output if self.pooling is None else self.pooling(out.output, lengths)
        values = self.read_out(output)
        if not whole:
            return (values[0],)
        after = [leaf for leaf in pytree.tree_leaves(out.state) if isinstance(leaf, Tensor)]
        return values[0] if self.length is None else values.transpose(0, 1), *after

    def _state(self, tensors: list[Tensor]) -> State:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.structure)

    def trace(self) -> Any:
        """Trace with `torch.export`, with a dynamic batch.

        Raises:
            ValueError: the model has Python code that depends on the values of tensors, or that torch cannot trace.
        """
        batch = torch.export.Dim("batch", min=1)
        dynamic = [{shape.index("batch"): batch} for shape in self.inputs.values()]
        try:
            with torch.no_grad(), quiet():
                return torch.export.export(self, tuple(self.examples.values()), dynamic_shapes=(tuple(dynamic),))
        except ValueError:
            raise  # a check of an argument, which says what to do
        except Exception as error:
            where = _own_code(error)
            if any("DataDependent" in kind.__name__ for kind in _kinds(error)):
                raise ValueError(
                    f"{where} decides in Python on values of tensors, which an exported file cannot do: write it with "
                    "torch.where, or with a fixed number of layers"
                ) from error
            raise ValueError(f"torch.export cannot trace {where}: {str(error).splitlines()[0]}") from error

    def description(self) -> dict[str, Any]:
        """What the metadata of a file says of the program."""
        from trellisnet import __version__  # noqa: PLC0415

        vocabulary = getattr(self.model, "vocabulary", None)
        return {
            "trellisnet": __version__,
            "model": type(self.model).__name__,
            "length": self.length,
            "inputs": self.inputs,
            "outputs": self.outputs,
            **({} if vocabulary is None else {"vocabulary": vocabulary.to_json()}),
        }


def make_program(model: Pretrained, length: int | None, lengths: bool) -> Program:
    """Make the program of a copy of a model, in which weight norm and other parametrisations are computed once.

    Raises:
        TypeError: it is no language model, classifier, regressor or labeller.
        ValueError: its weights are not in single or double precision, its state has no fixed form, or it is
            bidirectional.
    """
    if not isinstance(model, (LanguageModel, SequenceModel)):
        raise TypeError(f"export needs a language model or a model of sequences, got {type(model).__name__}")
    for parameter in model.parameters():
        if parameter.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"export needs weights in float32: call model.float(), got {parameter.dtype}")
    if getattr(model, "reverse", None) is not None:
        raise ValueError("export needs a model that reads forwards only: got a model with bidirectional=True")
    if length is None and isinstance(model, SequenceModel) and model.pooling is not None:
        raise ValueError(
            f"a stream needs a model with readout='last', got {model.options.readout!r}: export sequences of a stated "
            "length"
        )
    if lengths and not accepts(model.net, "lengths"):
        raise ValueError(f"lengths=True needs a body with `lengths`, got {type(model.net).__name__}")
    plain = copy.deepcopy(model).eval()
    for module in list(plain.modules()):
        if parametrize.is_parametrized(module):
            _compute_once(module)
    plain.requires_grad_(False)
    return Program(plain, None if length is None else positive_int("length", length), lengths).eval()


def _compute_once(module: nn.Module) -> None:
    """Replace the parametrised weights of a module by their values.

    torch's `remove_parametrizations` would change the class of the module, which its copies share.
    """
    names = list(module.get_submodule("parametrizations")._modules)
    values = {name: nn.Parameter(getattr(module, name).detach()) for name in names}
    module.__class__ = parametrize.type_before_parametrizations(module)
    del module._modules["parametrizations"]
    for name, value in values.items():
        module.register_parameter(name, value)


def _state_form(net: Any, streams: bool) -> tuple[dict[str, Tensor], Any, list[Any]]:
    """The tensors of a body's state by name, its structure, and all its leaves.

    Raises:
        ValueError: a stream is wanted, but the state changes its form from step to step, or does not start from zeros.
    """
    place = next(net.parameters(), torch.empty(0))
    x = torch.randn(2, EXAMPLES, net.input_size, dtype=place.dtype, device=place.device)
    with torch.no_grad():
        first = run_body(net, x[:1])
        after = run_body(net, x[1:], first.state).state
        leaves, structure = pytree.tree_flatten(first.state)
        names = {
            "_".join(["state", *map(_key, path)]): leaf
            for path, leaf in pytree.tree_flatten_with_path(first.state)[0]
            if isinstance(leaf, Tensor)
        }
        if streams:
            name = type(net).__name__
            if [_form(leaf) for leaf in leaves] != [_form(leaf) for leaf in pytree.tree_leaves(after)]:
                raise ValueError(
                    f"the state of {name} changes its form from step to step, so that one step cannot be a file: "
                    "export sequences of a stated length"
                )
            zeros = pytree.tree_map_only(Tensor, torch.zeros_like, first.state)
            if not torch.allclose(run_body(net, x[:1], zeros).output, first.output, atol=1e-5):
                raise ValueError(
                    f"a sequence of {name} does not start from a state of zeros, which a file's stream does: export "
                    "sequences of a stated length"
                )
    return names, structure, leaves


def _form(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf


def _key(key: Any) -> str:
    return str(next(getattr(key, name) for name in ("name", "idx", "key") if hasattr(key, name)))


def _shape(name: str, tensor: Tensor) -> Shape:
    dim = BATCH_DIM if "state" in name else 0
    return ["batch" if i == dim else int(size) for i, size in enumerate(tensor.shape)]


def _kinds(error: BaseException | None) -> Iterator[type[BaseException]]:
    while error is not None:
        yield from type(error).__mro__
        error = error.__cause__ or error.__context__


def _own_code(error: Exception) -> str:
    """The innermost function outside torch that an error came through."""
    outside = str(Path(torch.__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(outside)]
    frame = frames[-1]
    return f"{frame.name} ({frame.filename}, line {frame.lineno})"


@contextmanager
def quiet() -> Iterator[None]:
    """A context without the warnings of torch, onnxscript and onnxruntime about their own code."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
