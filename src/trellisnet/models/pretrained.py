"""Save models to folders and load them: `model.safetensors` and `config.json`, never a pickle."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from typing_extensions import Self

from trellisnet.checksums import check_intact, forget
from trellisnet.core.kernel import from_first_layout
from trellisnet.files import replacing
from trellisnet.models.bodies import make_body, name_of, options_of
from trellisnet.models.json_types import class_name, to_json_type
from trellisnet.models.shipped import find_model
from trellisnet.vocabulary import FILE_NAME as VOCABULARY

if TYPE_CHECKING:
    from trellisnet.models.export import Exported

WEIGHTS, CONFIG = "model.safetensors", "config.json"
VERSION = 2  # of the format; older versions are read, newer ones are refused


class Pretrained(nn.Module, ABC):
    """A model that can be saved and loaded: the arguments of its constructor, and its tensors.

    A user-defined `Cell` or body is saved by its class name only, and must be passed again when the model is loaded.
    """

    net: Any  # the body
    _labels: ClassVar[Mapping[str, str]] = {}  # further entries of the configuration, for other libraries

    @abstractmethod
    def _arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor, except the body."""

    @property
    def config(self) -> dict[str, Any]:
        """The arguments of the constructor that build an equal model, in JSON types.

        A model that builds its own body includes the options of the body. Other models have an entry `body`: its name,
        `input_size` and options; or a user-defined body itself, of which `save_pretrained` writes the class name.
        """
        arguments = self._arguments()
        if not isinstance(self, BuildsItsBody):
            name = name_of(self.net)
            known = {"name": name, "input_size": self.net.input_size, **options_of(self.net)}
            arguments["body"] = self.net if name is None else known
        return {name: to_json_type(value) for name, value in arguments.items()}

    @property
    def num_parameters(self) -> int:
        """Number of parameters; tied ones count once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A context without gradients and dropout. The mode of every module is restored at its end."""
        with reading(self):
            yield

    def save_pretrained(self, folder: Path | str) -> None:
        """Write the model to a folder, which is created if necessary. A failed save leaves an older model intact."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        forget(folder)
        config = self._described()
        texts = {CONFIG: json.dumps(config, indent=2) + "\n", **self._extra_files()}
        with replacing(folder / WEIGHTS, *(folder / name for name in texts)) as (weights, *files):
            save_file({name: tensor.contiguous() for name, tensor in self._own_tensors().items()}, weights)
            for file, text in zip(files, texts.values(), strict=True):
                file.write_text(text, encoding="utf-8")
        if VOCABULARY not in texts:
            (folder / VOCABULARY).unlink(missing_ok=True)  # of an older model

    def export(
        self,
        path: Path | str,
        format: str = "onnx",
        *,
        length: int | None = None,
        lengths: bool = False,
        int8: bool = False,
    ) -> Exported:
        """Write the model to a file that runs without this package, and compare the file with the model.

        The file has one step of a stream, with the tensors of the state as further inputs and outputs, or a sequence of
        a stated length. The batch is dynamic. Weight norm is computed once, and dropout is off.

        Args:
            path: the file, which ends in .onnx or .pt2.
            format: "onnx", for onnxruntime; "pt2", for `torch.export.load`; or "aoti", compiled by AOTInductor for this
                kind of machine.
            length: number of steps of a sequence; default one step with its state.
            lengths: sequences of unequal lengths: the file has a further input, the length of each.
            int8: weights in 8 bits, for "onnx".

        Raises:
            ImportError: "onnx" needs the extra `export`.
            ValueError: an argument is wrong, or the model cannot be traced; the message names the reason.
            RuntimeError: the file's results differ from the model's by more than rounding does; nothing is written.
        """
        from trellisnet.models.export import export_model  # noqa: PLC0415  # it imports the models

        return export_model(self, path, format, length=length, lengths=lengths, int8=int8)

    def _described(self) -> dict[str, Any]:
        """Return the content of `config.json`."""
        arguments = json.loads(json.dumps(self.config, default=class_name))
        return {"format_version": VERSION, "model": type(self).__name__, **self._labels, "arguments": arguments}

    def load_weights(self, folder: Path | str, grown: bool = False) -> None:
        """Copy the weights that `save_pretrained` of an equal model wrote into this one, all or none of them.

        With `grown`, tensors of the body's `added_parts` may be missing: they keep their values.
        """
        path = Path(folder) / WEIGHTS
        tensors = _read_tensors(path)
        parts = tuple(f"net.{part}." for part in getattr(self.net, "added_parts", ()) if grown)
        kept = {name: tensor for name, tensor in self._own_tensors().items() if name.startswith(parts)}
        self._load_tensors({**kept, **tensors}, path)

    def _extra_files(self) -> dict[str, str]:
        """Return the contents of further files of the model by file name."""
        return {}

    @classmethod
    def from_pretrained(
        cls,
        folder: Path | str,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **changes: Any,
    ) -> Self:
        """Load a model of this class or of a direct subclass, in evaluation mode.

        Args:
            folder: the folder that `save_pretrained` wrote, or the name of a pretrained model of the package.
            device: default torch's.
            dtype: default the one it was saved in.
            changes: arguments of the constructor that replace the saved ones: for example a dropout, `memory`, or a
                user-defined `cell` or `body`.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is damaged or does not fit the model, or a user-defined `cell` or `body` is not passed.
        """
        folder = find_model(folder)
        check_intact(folder)
        version, kind, saved = cls._read_config(folder / CONFIG)
        arguments = {**saved, **cls._extra_arguments(folder), **changes}
        tensors = _read_tensors(folder / WEIGHTS)
        if version == 1:
            tensors = from_first_layout(tensors, "net.kernel.")
        if dtype is None:
            dtype = next((t.dtype for t in tensors.values() if t.is_floating_point()), None)
        changed = f" with {', '.join(changes)} changed" if changes else ""
        model = kind._build(arguments, device, dtype, f"{folder / CONFIG}{changed}")
        model._load_tensors(tensors, folder / WEIGHTS)
        return model.eval()

    @classmethod
    def _build(cls, arguments: Mapping[str, Any], device: Any, dtype: torch.dtype | None, where: Path | str) -> Self:
        """Build a model from its `config`, which came from `where`."""
        for own in ("cell", "body"):
            if isinstance(given := arguments.get(own), dict) and "class" in given:
                raise ValueError(f"{where}: the model was built with a {own} of its own: pass {own}={given['class']}()")
        try:
            if issubclass(cls, BuildsItsBody):
                return cls(**arguments, device=device, dtype=dtype)
            options = dict(arguments)
            body = options.pop("body", None)
            if isinstance(body, dict):
                body = make_body(**body, device=device, dtype=dtype)
            return cls(body, **options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where} does not describe a {cls.__name__}: {error}") from None

    @classmethod
    def _extra_arguments(cls, folder: Path) -> dict[str, Any]:
        """Return the arguments of the constructor that `_extra_files` saved."""
        return {}

    @classmethod
    def _read_config(cls, path: Path) -> tuple[int, type[Self], dict[str, Any]]:
        """Return the version of the format, the class of the model, and the arguments of its constructor."""
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(f"{path} not found: not a folder of a saved {cls.__name__}") from None
        except ValueError as error:
            raise ValueError(f"{path} is not valid JSON: {error}") from None
        return cls._check_config(config, path)

    @classmethod
    def _check_config(cls, config: Any, path: Path | str) -> tuple[int, type[Self], dict[str, Any]]:
        """Return the version of the format, the class of the model, and the arguments of its constructor."""
        version: Any = config.get("format_version") if isinstance(config, dict) else None
        if version not in range(1, VERSION + 1):
            raise ValueError(f"{path} has format_version {version!r}, this version of trellisnet reads 1 to {VERSION}")
        import_module("trellisnet.models.trellis")  # its models are subclasses, known once they are imported
        # the first of a name: `torch.export` makes subclasses of the same names later
        kinds = {kind.__name__: kind for kind in (*reversed(cls.__subclasses__()), cls)}
        kind = kinds.get(config.get("model"))
        if kind is None or not isinstance(config.get("arguments"), dict):
            expected = " or ".join(map(repr, reversed(kinds)))
            raise ValueError(f"{path} describes a {config.get('model')!r}, expected {expected} and its arguments")
        return version, kind, config["arguments"]

    def _own_tensors(self) -> dict[str, Tensor]:
        """Return parameters and buffers by name; tied parameters appear once, under their first name."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def _load_tensors(self, tensors: dict[str, Tensor], path: Path, names: Mapping[str, str] | None = None) -> None:
        """Copy the tensors of a file into the model.

        Args:
            tensors: the tensors by the names of this model.
            path: the file, for errors.
            names: names of the tensors in the file, for errors; default those of this model.

        Raises:
            ValueError: the tensors do not fit; the model is unchanged.
        """
        own, names = self._own_tensors(), names or {}
        problems = [f"{names.get(name, name)} is missing" for name in own.keys() - tensors.keys()]
        problems += [f"{names.get(name, name)} is not part of the model" for name in tensors.keys() - own.keys()]
        for name in own.keys() & tensors.keys():
            if own[name].shape != tensors[name].shape:
                expected, got = tuple(own[name].shape), tuple(tensors[name].shape)
                problems.append(f"{names.get(name, name)} has shape {got}, expected {expected}")
            elif not tensors[name].is_floating_point():
                problems.append(f"{names.get(name, name)} must be of floating-point numbers, got {tensors[name].dtype}")
        if problems:
            raise ValueError(f"{path} does not fit the model: {'; '.join(sorted(problems))}")
        with torch.no_grad():
            for name, tensor in tensors.items():
                own[name].copy_(tensor)


@contextmanager
def reading(model: nn.Module) -> Iterator[None]:
    """A model without gradients and dropout, whatever its mode, which is restored afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


class BuildsItsBody:
    """Marks models whose constructor takes the options of a body and builds the body itself."""


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        shards = sorted(path.parent.glob(f"{path.stem}-*-of-*{path.suffix}"))  # as transformers writes large models
        if not shards:
            raise FileNotFoundError(f"{path} not found: the folder holds no weights") from None
        return {name: tensor for shard in shards for name, tensor in _read_tensors(shard).items()}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a complete safetensors file: {error}") from None
