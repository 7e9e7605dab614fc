"""ONNX files: written by torch, made small here, run by onnxruntime."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trellisnet.extras import require
from trellisnet.models.export.compare import Run
from trellisnet.models.export.programs import Program, quiet

NO_LIMIT = 2**40


def require_onnx() -> None:
    """Import what ONNX files need.

    Raises:
        ImportError: names the extra that installs it.
    """
    with quiet():
        for module in ("onnx", "onnxruntime", "onnxscript"):
            require(module, "export", "format 'onnx'")


def write(program: Program, file: Path, int8: bool) -> None:
    """Write a program; with `int8`, the weights of its products and embeddings in 8 bits."""
    require_onnx()
    traced = program.trace()
    with quiet():
        import onnx_ir  # noqa: PLC0415
        from onnx_ir.passes import common  # noqa: PLC0415
        from onnxscript import optimizer  # noqa: PLC0415

        exported: Any = torch.onnx.export(
            traced, input_names=list(program.inputs), output_names=list(program.outputs), verbose=False, optimize=False
        )
        model = exported.model
        # Every layer has its own slices of the kernel. Folded, they are constants that products and int8 can use, and
        # those of all layers are equal: one of each stays.
        optimizer.optimize_ir(model, input_size_limit=NO_LIMIT, output_size_limit=NO_LIMIT)
        common.DeduplicateInitializersPass(size_limit=NO_LIMIT)(model)
        common.RemoveUnusedNodesPass()(model)
        common.ClearMetadataAndDocStringPass()(model)  # stack traces of this machine, larger than a small net
        shapes = {**program.inputs, **program.outputs}
        for value in (*model.graph.inputs, *model.graph.outputs):
            value.shape = onnx_ir.Shape(shapes[value.name])  # with the name of the batch instead of torch's symbol
        onnx_ir.save(model, file)
        if int8:
            _quantise(file)


def _quantise(file: Path) -> None:
    import onnx  # noqa: PLC0415
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415

    model = onnx.load(file)
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    readers = Counter(name for node in graph.node for name in node.input)
    for node in graph.node:
        name = node.input[1] if node.op_type == "Gemm" else None
        if name in weights and readers[name] > 1:
            # onnxruntime transposes the matrix in its place, but the embedding reads it too if the two are tied
            own = graph.initializer.add()
            own.CopyFrom(weights[name])
            own.name = node.input[1] = f"{name}_of_{node.name}"
    del graph.value_info[:]  # shapes before that transposition
    # unsigned weights: processors without special instructions saturate sums of products with signed ones
    quantize_dynamic(model, file, weight_type=QuantType.QUInt8)


def load(file: Path, program: Program) -> Run:
    """Load a file; return it as a function of tensors."""
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = list(program.outputs)

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        results = session.run(names, {name: tensor.cpu().numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(result) for name, result in zip(names, results, strict=True)}

    return run


def add_metadata(file: Path, metadata: dict[str, Any]) -> None:
    """Write facts into a file; onnxruntime shows them as `custom_metadata_map`, a dictionary of strings."""
    import onnx  # noqa: PLC0415

    model = onnx.load(file)
    del model.graph.value_info[:]  # shapes of inner values, which onnxruntime infers itself
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}
    onnx.helper.set_model_props(model, texts)
    onnx.save(model, file)
