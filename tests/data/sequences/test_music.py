import hashlib
import struct
import zlib

import numpy as np
import pytest

from trellisnet.data import MissingDataError, load
from trellisnet.data.sequences import music
from trellisnet.data.sequences.matlab import parse_cells

RNG = np.random.default_rng(0)
SPLITS = {"train": (5, 2, 9), "valid": (3,), "test": (4, 4)}


def element(kind, content):
    if len(content) <= 4:
        return struct.pack("<2H", kind, len(content)) + content.ljust(4, b"\0")
    return struct.pack("<2I", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(kind, shape, name, content):
    head = element(6, struct.pack("<2I", kind, 0)) + element(5, struct.pack("<2i", *shape))
    return element(14, head + element(1, name) + content)


def matlab(variables):
    """A file of MATLAB's with cell arrays of matrices."""
    content = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    for name, pieces in variables.items():
        cells = b"".join(matrix(6, piece.shape, b"", element(2, piece.tobytes(order="F"))) for piece in pieces)
        packed = zlib.compress(matrix(1, (1, len(pieces)), name.encode(), cells))
        content += struct.pack("<2I", 15, len(packed)) + packed
    return content


@pytest.fixture
def pieces():
    return {
        split: [RNG.integers(2, size=(frames, 88), dtype=np.uint8) for frames in lengths]
        for split, lengths in SPLITS.items()
    }


@pytest.fixture
def folder(pieces, tmp_path, monkeypatch):
    """A tiny collection in the place of a real one, with its hash."""
    content = matlab({f"{split}data": some for split, some in pieces.items()})
    (tmp_path / "music").mkdir()
    (tmp_path / "music" / "Nottingham.mat").write_bytes(content)
    known = ("Nottingham.mat", hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(music.COLLECTIONS, "nottingham", known)
    return tmp_path


def test_every_frame_has_the_next_one_as_target(folder, pieces):
    data = load("music", folder, collection="nottingham")
    assert (data.name, data.task, data.input_size, data.output_size) == ("music-nottingham", "labels", 88, 88)
    assert (data.labels[0], data.labels[-1]) == ("21", "108")
    assert {split: items.lengths.tolist() for split, items in data.splits.items()} == {
        split: [frames - 1 for frames in lengths] for split, lengths in SPLITS.items()
    }
    batch = next(iter(data.batches("train", 3)))
    assert batch.inputs.shape == batch.targets.shape == (3, 8, 88)
    for row, piece in enumerate(pieces["train"]):
        steps = len(piece) - 1
        np.testing.assert_array_equal(batch.inputs[row, :steps], piece[:-1])
        np.testing.assert_array_equal(batch.targets[row, :steps], piece[1:])
        assert not batch.inputs[row, steps:].any()
        assert not batch.targets[row, steps:].any()


def test_a_file_that_is_not_the_standard_one_is_refused(folder):
    path = folder / "music" / "Nottingham.mat"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ValueError, match=r"Nottingham\.mat: not the file of that name that the literature uses"):
        load("music", folder, collection="nottingham")


def test_missing_files_are_described_without_an_address(tmp_path):
    with pytest.raises(MissingDataError) as caught:
        load("music", tmp_path)
    message = str(caught.value)
    for part in ("JSB_Chorales.mat", "'music'", "no server is known", "Bai, Kolter, Koltun, 2018", "$TRELLISNET_DATA"):
        assert part in message
    assert "http" not in message


def test_an_unknown_collection_is_named():
    with pytest.raises(ValueError, match="collection must be one of 'jsb', 'nottingham', 'muse', 'piano', got 'bach'"):
        load("music", collection="bach")


def test_cells_of_any_size_are_read(tmp_path):
    shapes = ((1, 1), (2, 2), (3, 5), (0, 7))
    given = {"a": [RNG.integers(256, size=shape, dtype=np.uint8) for shape in shapes], "bb": []}
    found = parse_cells(matlab(given), tmp_path)
    assert list(found) == list(given)
    for name, cells in given.items():
        for ours, theirs in zip(found[name], cells, strict=True):
            np.testing.assert_array_equal(ours, theirs)


HEADER, GOOD = matlab({}), matlab({"a": [np.ones((3, 4), np.uint8)]})


def variable(content):
    packed = zlib.compress(content)
    return HEADER + struct.pack("<2I", 15, len(packed)) + packed


HALF = matrix(6, (1, 1), b"", element(9, struct.pack("<d", 0.5)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must begin with the header of a MATLAB 5.0 file, got b''"),
        (b"MATLAB 7.3" + GOOD[10:], "must begin with the header of a MATLAB 5.0 file, got b'MATLAB 7.3'"),
        (GOOD[:-9], "must have cell arrays of matrices of bytes: an element of .* bytes has only"),
        (GOOD[:-9] + bytes(9), "must have cell arrays of matrices of bytes: Error -"),
        (GOOD + struct.pack("<2I", 14, 0), "type must be 15, got 14"),
        (variable(HALF), "class must be 1, got 6"),
        (variable(matrix(1, (1, 1), b"a", HALF)), "type must be 2, got 9"),
        (variable(matrix(1, (1, 2), b"a", HALF)), "number of cells must be 2, got 1"),
    ],
)
def test_other_files_are_refused(content, message, tmp_path):
    with pytest.raises(ValueError, match=rf"own\.mat: .*{message}"):
        parse_cells(content, tmp_path / "own.mat")
