"""Polyphonic music: which of a piano's 88 notes sound in the next frame (Boulanger-Lewandowski et al., 2012)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.batches import Items
from trellisnet.data.checks import check_content, pick
from trellisnet.data.files.places import Source, find
from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.sequences.given import padded
from trellisnet.data.sequences.matlab import parse_cells

NOTES = 88
LOWEST = 21  # the MIDI number of the first note
NOTE = "nats per frame, the sum over 88 notes; the first frame of a piece is not predicted"
ORIGIN = (
    "the MATLAB files of polyphonic music in the authors' code of 'An Empirical Evaluation of Generic Convolutional "
    "and Recurrent Networks for Sequence Modeling' (Bai, Kolter, Koltun, 2018)"
)
COLLECTIONS = {  # file and SHA-256
    "jsb": ("JSB_Chorales.mat", "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4"),
    "nottingham": ("Nottingham.mat", "d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea"),
    "muse": ("MuseData.mat", "e8d9eb422ec3833c25f43a9f854d4ee0b9118a20b45f2c183395cdc30ffa14ff"),
    "piano": ("Piano_midi.mat", "990a8a71d5764a7eaa3e78d9e5023d1470380fe2db3a1448265a97a24c8b1c34"),
}


class MusicItems(Items):
    """Pieces of notes (frames, 88), each frame with the next one as its target."""

    lengths: NDArray[np.int64]

    def __init__(self, pieces: Sequence[NDArray[np.uint8]]) -> None:
        self.pieces = pieces
        self.lengths = np.array([len(piece) - 1 for piece in pieces], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.pieces)

    def take(
        self, indices: NDArray[np.int64], steps: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return notes (B, steps, 88) and those of the next frames (B, steps, 88), zero after the end of a piece."""
        pieces = [self.pieces[i].astype(np.float32) for i in indices.tolist()]
        return padded([piece[:-1] for piece in pieces], steps), padded([piece[1:] for piece in pieces], steps)


def load_music(root: str | Path | None = None, *, collection: str = "jsb") -> SequenceData:
    """Load a collection of polyphonic music, as frames of 88 notes that sound or not.

    Args:
        root: a folder to search first.
        collection: "jsb", chorales of J. S. Bach; "nottingham", folk tunes; "muse", orchestral and piano music; or
            "piano", classical piano music.

    Raises:
        ValueError: a file is not the standard one, or there is no such collection.
        MissingDataError: the file is not found.
    """
    file, sha256 = pick("collection", collection, COLLECTIONS)
    _, files = find([Source(("music", "mdata"), (file,), (), origin=ORIGIN)], root)
    path = files[file]
    check_content(path, sha256)
    variables = parse_cells(path.read_bytes(), path)
    splits = {split: MusicItems(variables[f"{split}data"]) for split in ("train", "valid", "test")}
    notes = tuple(str(LOWEST + i) for i in range(NOTES))
    return SequenceData(f"music-{collection}", "labels", NOTES, NOTES, splits, NOTE, notes, ahead=True)
