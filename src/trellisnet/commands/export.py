"""`trellisnet export`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal


def export(
    run: str,
    *,
    format: Literal["onnx", "pt2", "aoti"] = "onnx",
    output: str | None = None,
    length: int | None = None,
    lengths: bool = False,
    int8: bool = False,
    model: Literal["best", "last"] = "best",
) -> None:
    """Write a trained model to a file that runs without this package.

    The file has one step of a stream with its state, or a sequence of a stated length. It is run and compared with the
    model before it is kept; the largest difference is printed and stored in its metadata. Example: `trellisnet export
    runs/demo-1 --int8 true`.

    Args:
        run: folder of a run, or of a model that `save_pretrained` wrote, or name of a pretrained model.
        format: onnx, for onnxruntime (needs the extra `export`); pt2, for `torch.export.load`; or aoti, compiled for
            this kind of machine.
        output: the file, which ends in .onnx or .pt2; default `step` or `sequence-LENGTH` in the folder;
            for a pretrained model in the current folder.
        length: number of steps of a sequence; default one step with its state.
        lengths: true for sequences of unequal lengths: the file has a further input, the length of each.
        int8: true for weights in 8 bits; only with onnx.
        model: the best model by validation, or the one of the last epoch.
    """
    from trellisnet.models.export import ENDINGS, export_model  # noqa: PLC0415
    from trellisnet.training.trained import load_model  # noqa: PLC0415

    folder = Path(run)
    trained, facts = load_model(folder, model)
    name = "step" if length is None else f"sequence-{length}"
    place = folder if folder.is_dir() else Path()
    path = place / f"{name}{ENDINGS[format]}" if output is None else Path(output)
    done = export_model(trained, path, format, length=length, lengths=lengths, int8=int8, facts=facts)
    print(f"inputs: {_shown(done.inputs)}")
    print(f"outputs: {_shown(done.outputs)}")
    print(f"largest difference from the model: {done.difference:.1e}")
    print(f"{done.size:,} bytes: {done.path}")


def _shown(shapes: Mapping[str, Sequence[int | str]]) -> str:
    return ", ".join(f"{name} ({' x '.join(map(str, shape))})" for name, shape in shapes.items())
