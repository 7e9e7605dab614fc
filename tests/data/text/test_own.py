import hashlib

import numpy as np
import pytest

from trellisnet.data import load
from trellisnet.data.text.own import load_text, split_folder

LINES = "".join(f"line {i} of a text with some words\n" for i in range(400))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "story.txt"
    path.write_text(LINES, encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["characters", "words", "bpe"])
def test_decoded_splits_are_the_text(path, kind):
    data = load("text", path=path, kind=kind, **({"vocabulary_size": 300} if kind == "bpe" else {}))
    assert list(data.splits) == ["train", "valid", "test"]
    decoded = "".join(data.vocabulary.decode(ids) for ids in data.splits.values())
    if kind != "words":
        assert "".join(decoded.split("<unk>")) == decoded == LINES
    else:
        training = data.vocabulary.decode(data.splits["train"])
        assert LINES.startswith(training)
        assert len(training) == pytest.approx(0.9 * len(LINES), abs=40)
        assert "<unk>" in decoded  # line numbers that the training split does not have
    assert data.splits["train"].dtype == (np.uint8 if len(data.vocabulary) <= 256 else np.uint16)
    assert isinstance(data.splits["train"], np.memmap)
    training = data.splits["train"]
    assert data.vocabulary.encode(data.vocabulary.decode(training)) == training.tolist()


def test_tokens_are_sorted_by_frequency(path):
    data = load_text(path, "words")
    counts = np.bincount(data.splits["train"], minlength=len(data.vocabulary))
    assert (np.diff(counts) <= 0).all()
    assert data.vocabulary.tokens[-1] == "<unk>"
    tied = [token for token, count in zip(data.vocabulary.tokens, counts, strict=True) if count == 1]
    assert tied == sorted(tied)


def test_the_cache_key_depends_on_the_content(path, cache):
    load_text(path)
    load_text(path)
    assert len(list(cache.glob("entries/story-*"))) == 1
    path.write_text(LINES.upper(), encoding="utf-8")
    assert "L" in load_text(path).vocabulary.tokens


def test_a_folder_with_named_files(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(f"{split}\n")
    data = load_text(tmp_path, "words")
    assert data.vocabulary.decode(data.splits["train"]) == "train\n"
    assert data.vocabulary.decode(data.splits["test"]) == "<unk>\n"
    (tmp_path / "test.txt").unlink()
    with pytest.raises(ValueError, match=r"must have one file test\.\*, got 0"):
        load_text(tmp_path)


def test_files_of_a_folder_are_assigned_to_splits_by_hash(tmp_path):
    for i in range(40):
        (tmp_path / f"{i}.txt").write_text(f"text {i}\n")
    (tmp_path / ".hidden").write_bytes(b"\xff")
    splits = split_folder(tmp_path)
    assert [len(ranges) for ranges in splits.values()] == [36, 2, 2]
    assert len({file_range.path for ranges in splits.values() for file_range in ranges}) == 40
    names = [hashlib.sha256(file_range.path.name.encode()).digest() for file_range in splits["valid"]]
    assert max(names) < min(hashlib.sha256(file_range.path.name.encode()).digest() for file_range in splits["train"])
    with pytest.raises(ValueError, match="or at least 3 files, got 0"):
        split_folder(tmp_path / "nothing")


def test_errors_locate_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "bad.txt"
    content = bytearray(LINES.encode())
    at = content.index(b"line 5 of")
    content[at] = 0xFF
    path.write_bytes(content)
    for kind in ("characters", "words", "bpe"):
        with pytest.raises(ValueError, match=rf"bad\.txt: must be UTF-8, but is not at byte {at} \(line 6\): invalid"):
            load_text(path, kind)
    path.write_bytes(LINES.encode() + "é".encode()[:1])
    with pytest.raises(
        ValueError, match=rf"bad\.txt: must be UTF-8, but is not at byte {len(LINES):,} .*unexpected end"
    ):
        load_text(path, "words")


def test_missing_and_empty_text_is_an_error(tmp_path):
    path = tmp_path / "empty.txt"
    path.touch()
    with pytest.raises(ValueError, match=r"empty\.txt: is empty"):
        load_text(path)
    path.write_text("a")
    with pytest.raises(ValueError, match=r"empty\.txt: too short to be split"):
        load_text(path)
    with pytest.raises(FileNotFoundError, match=r"path must be a text file or a folder of them, got '.*nothing'"):
        load_text(tmp_path / "nothing")
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("a" if split != "valid" else "")
    with pytest.raises(ValueError, match=r"valid\.txt: the text for 'valid' is empty"):
        load_text(tmp_path)


def test_errors_name_bad_options(path):
    with pytest.raises(ValueError, match="kind must be one of 'characters', 'words', 'bpe', got 'letters'"):
        load_text(path, "letters")
    with pytest.raises(ValueError, match="vocabulary_size belongs to kind 'bpe', got 5 and kind 'words'"):
        load_text(path, "words", 5)
    with pytest.raises(ValueError, match="vocabulary_size must be at least 256, the number of bytes, got 5"):
        load_text(path, "bpe", 5)


def test_bpe_encodes_any_text(path, tmp_path):
    vocabulary = load_text(path, "bpe", 300).vocabulary
    vocabulary.save(tmp_path)
    again = type(vocabulary).load(tmp_path)
    text = "Snow: ☃\nand 雪 \n\n  indented"
    assert again == vocabulary
    assert again.decode(again.encode(text)) == text
    assert again.encode(LINES) == vocabulary.encode(LINES)


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_a_text_without_blanks(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("trellisnet.data.text.ranges.BLOCK", 1000)
    path = tmp_path / "genome.txt"
    path.write_text("ACGTé" * 40_000, encoding="utf-8")
    if kind == "words":
        with pytest.raises(ValueError, match=r"genome\.txt: words must have at most 65,536 bytes"):
            load_text(path, kind)
    else:
        data = load_text(path, kind)
        decoded = [data.vocabulary.decode(ids) for ids in data.splits.values()]
        assert "".join(split.removesuffix("\n") for split in decoded) == "ACGTé" * 40_000
