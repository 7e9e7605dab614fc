"""Export a model to one file that runs without this package: ONNX, or a program of torch.

`programs.py` has what is exported, a model as a function of named tensors; `onnx_file.py` and `torch_file.py` write and
run the files of each format; `compare.py` runs a file and compares it with the model before it is kept.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trellisnet.core.checks import boolean, one_of, positive_int
from trellisnet.files import replacing
from trellisnet.models.export import onnx_file, torch_file
from trellisnet.models.export.compare import largest_difference
from trellisnet.models.export.programs import make_program
from trellisnet.models.pretrained import Pretrained

ENDINGS = {"onnx": ".onnx", "pt2": ".pt2", "aoti": ".pt2"}  # of the files, by format
LARGEST = 1e-4  # difference that rounding explains; int8 has no bound, because it depends on the weights


@dataclass(frozen=True)
class Exported:
    """A file that was written.

    Attributes:
        path: the file.
        inputs: shape of each input by name; "batch" is dynamic.
        outputs: shape of each output by name.
        difference: largest difference from the model, over several batches.
        size: number of bytes.
    """

    path: Path
    inputs: dict[str, list[int | str]]
    outputs: dict[str, list[int | str]]
    difference: float
    size: int


def export_model(
    model: Pretrained,
    path: Path | str,
    format: str = "onnx",
    *,
    length: int | None = None,
    lengths: bool = False,
    int8: bool = False,
    facts: dict[str, Any] | None = None,
) -> Exported:
    """Write a model to a file, run the file, and compare it with the model: see `Pretrained.export`.

    `facts` are further facts for the file's metadata, such as the scale of the data.
    """
    one_of("format", format, ENDINGS)
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path must be in a folder that exists, got {str(path)!r}")
    if path.suffix != ENDINGS[format]:
        raise ValueError(f"path must end in {ENDINGS[format]} for the format {format!r}, got {str(path)!r}")
    if isinstance(length, str):
        raise TypeError(
            f"length must be an integer >= 1, or None for one step with its state, got {length!r}: the time axis of a "
            "file cannot be dynamic"
        )
    length = None if length is None else positive_int("length", length)
    if boolean("lengths", lengths) and length is None:
        raise ValueError("lengths=True belongs to sequences of a stated length, got length=None")
    if boolean("int8", int8) and format != "onnx":
        raise ValueError(f"int8=True belongs to format 'onnx', got format={format!r}")
    program = make_program(model, length, lengths)
    with TemporaryDirectory() as folder:
        file = Path(folder) / path.name
        files: Any = onnx_file if format == "onnx" else torch_file
        files.write(program, file, int8 if format == "onnx" else format == "aoti")
        difference = largest_difference(model, program, files.load(file, program))
        if not difference <= (math.inf if int8 else LARGEST):  # also if it is not a number
            raise RuntimeError(
                f"{path} was not written: the file's results differ from the model's by {difference:.1e}"
            )
        metadata = {**program.description(), "int8": int8, "largest_difference": difference, **(facts or {})}
        files.add_metadata(file, metadata)
        with replacing(path) as (target,):
            shutil.copyfile(file, target)
    return Exported(path, program.inputs, program.outputs, difference, path.stat().st_size)
