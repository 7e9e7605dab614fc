"""`trellisnet translate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal


def translate(
    run: str,
    *,
    input: str | None = None,
    output: str | None = None,
    reference: str | None = None,
    beams: int = 4,
    length_penalty: float = 1.0,
    max_length: int | None = None,
    batch_size: int = 32,
    model: Literal["best", "last"] = "best",
    device: str = "auto",
) -> None:
    """Translate text line by line: `trellisnet translate runs/multi30k-small-1 < in.txt > out.txt`.

    Args:
        run: folder of a run, or of a model that `save_pretrained` wrote.
        input: file with one sentence per line; default standard input.
        output: new file for the translations; default standard output.
        reference: file with a translation of each line: BLEU and chrF are printed on standard error, with the
            signatures of sacrebleu (needs the extra `translation`).
        beams: number of hypotheses of the beam search; 1 is greedy.
        length_penalty: hypotheses are ranked by log-probability / length ** length_penalty.
        max_length: maximum number of tokens of a translation; default 1.5 times its source and 10 more.
        batch_size: sentences that are translated together.
        model: the best model by validation, or the one of the last epoch.
        device: auto, cpu, cuda, mps, ...; auto selects a GPU if there is one.
    """
    from trellisnet.data.translation.pairs import read_lines, split_lines  # noqa: PLC0415
    from trellisnet.files import replacing  # noqa: PLC0415
    from trellisnet.models.seq2seq import Seq2Seq  # noqa: PLC0415
    from trellisnet.process import prepare_process  # noqa: PLC0415
    from trellisnet.training.bleu import require_sacrebleu, scores  # noqa: PLC0415
    from trellisnet.training.distribution import choose_device  # noqa: PLC0415

    lines = split_lines(sys.stdin.buffer.read(), "standard input") if input is None else read_lines(Path(input))
    if not lines:
        raise ValueError(f"{input or 'standard input'} must have at least one line, got none")
    references = None
    if reference is not None:
        require_sacrebleu()
        references = read_lines(Path(reference))
        if len(references) != len(lines):
            raise ValueError(f"--reference {reference} must have {len(lines)} lines, got {len(references)}")
    if output is not None and Path(output).exists():
        raise FileExistsError(f"--output {output} exists already: choose another name")
    if output is not None and not Path(output).parent.is_dir():
        raise FileNotFoundError(f"--output must be in a folder that exists, got {output}")
    prepare_process()
    folder = Path(run)
    place = choose_device(device, option="--device")
    chosen = folder / model if (folder / model).is_dir() else folder
    translator = Seq2Seq.from_pretrained(chosen, device=place)
    found = translator.translate(
        lines, beams=beams, length_penalty=length_penalty, max_length=max_length, batch_size=batch_size
    )
    text = "".join(f"{line}\n" for line in found)
    if output is None:
        sys.stdout.write(text)
    else:
        with replacing(Path(output)) as (file,):
            file.write_text(text, encoding="utf-8")
    if references is not None:
        for score in scores(found, references):
            print(score, file=sys.stderr)
