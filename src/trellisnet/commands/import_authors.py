"""`trellisnet import-authors`."""

from __future__ import annotations

from pathlib import Path


def import_authors(
    checkpoint: str, *, to: str, num_layers: int | None = None, dilation: int | list[int] = 1, corpus: str | None = None
) -> None:
    """Convert a checkpoint of the authors' code to a model that `TrellisLM.from_pretrained` reads.

    Args:
        checkpoint: file saved by the authors' code (a state_dict). Only tensors are read; nothing in it is executed.
        to: new or empty folder for the model.
        num_layers: depth, which the file does not contain; default the paper's depth if the sizes are the paper's.
        dilation: dilation, which the file does not contain either.
        corpus: text file for the vocabulary, the authors' training file: as in their code, its words in the order of
            their first appearance, with `<eos>` at line ends.
    """
    from trellisnet.models.trellis import TrellisLM  # noqa: PLC0415
    from trellisnet.vocabulary import Vocabulary  # noqa: PLC0415

    if Path(to).is_file() or (Path(to).exists() and any(Path(to).iterdir())):
        raise ValueError(f"--to must be a new or empty folder, got {to}")
    vocabulary = None
    if corpus is not None:
        lines = Path(corpus).read_text(encoding="utf-8").splitlines()
        vocabulary = Vocabulary(dict.fromkeys(word for line in lines for word in (*line.split(), "<eos>")), "words")
    lm = TrellisLM.from_authors(checkpoint, num_layers, dilation, vocabulary=vocabulary)
    lm.save_pretrained(to)
    print(f"{to}: {lm.num_parameters / 1e6:.2f}M parameters, {lm.vocab_size} words, {lm.net.num_layers} layers")
