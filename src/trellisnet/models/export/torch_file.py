"""Programs of torch in a file: `torch.export`'s own, or compiled by AOTInductor."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trellisnet.models.export.compare import Run
from trellisnet.models.export.programs import Program, quiet

METADATA = "trellisnet.json"


def write(program: Program, file: Path, compiled: bool) -> None:
    """Write a program.

    Raises:
        RuntimeError: torch cannot compile it; the message says why.
    """
    traced = program.trace()
    with quiet():
        if not compiled:
            torch.export.save(traced, file)
            return
        try:
            torch._inductor.aoti_compile_and_package(traced, package_path=str(file))
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise RuntimeError(f"format 'aoti' needs a C++ compiler that torch can use: {reason}") from error


def load(file: Path, program: Program) -> Run:
    """Load a file; return it as a function of tensors."""
    with zipfile.ZipFile(file) as archive:
        compiled = any("/aotinductor/" in name for name in archive.namelist())
    with quiet():
        call: Any = torch._inductor.aoti_load_package(str(file)) if compiled else torch.export.load(file).module()

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        # a compiled program reads memory as that of its example was, and does not look at strides
        tensors = [tensor.contiguous() for tensor in inputs.values()]
        with torch.no_grad():
            return dict(zip(program.outputs, call(*tensors), strict=True))

    return run


def add_metadata(file: Path, metadata: dict[str, Any]) -> None:
    """Write facts into a file, as JSON under the name `trellisnet.json` among the archive's extra files."""
    with zipfile.ZipFile(file, "a", zipfile.ZIP_STORED) as archive:
        top = archive.namelist()[0].split("/")[0]
        archive.writestr(f"{top}/extra/{METADATA}", json.dumps(metadata, ensure_ascii=False))
