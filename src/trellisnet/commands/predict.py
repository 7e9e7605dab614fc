"""`trellisnet predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def predict(
    run: str,
    *,
    input: str,
    output: str,
    model: Literal["best", "last"] = "best",
    per: Literal["line", "document"] | None = None,
) -> None:
    """Write predictions of a trained model for new data to a file.

    They are labels with probabilities, values or forecasts in the units of the training file, or scores of texts, in
    the order of the input. Example: `trellisnet predict runs/my-labels-1 --input new.csv --output labels.csv`.

    Args:
        run: folder of a run, or of one of its models, such as RUN/best or a copy of it.
        input: file in the form of the training file; columns of labels and targets are not needed.
        output: new file that ends in .csv, .jsonl (JSON lines) or .parquet (needs the extra `tables`).
        model: of a run: the best model by validation, or the one of the last epoch.
        per: language models only: score every line (default), or the file as one document.
    """
    from trellisnet.data.files.columns import check_output, write_columns  # noqa: PLC0415

    check_output(Path(output))

    from trellisnet.training.prediction import predict as predict_columns  # noqa: PLC0415

    columns = predict_columns(run, input, which=model, per=per)
    write_columns(Path(output), columns)
    print(f"{len(next(iter(columns.values()))):,} rows: {output}")
