import pytest

from trellisnet.data.text import ranges
from trellisnet.data.text.ranges import FileRange, blocks, split_file


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(ranges, "BLOCK", 8)


@pytest.mark.parametrize(
    "text", [b"", b"a", b"a\n", b"one two three four\nfive\n", b"averyveryverylongword and\nmore", b"\n\n"]
)
@pytest.mark.parametrize("separators", [b" \n", b"\n", b""])
def test_blocks_are_the_text_and_split_no_word(tmp_path, text, separators):
    path = tmp_path / "a"
    path.write_bytes(text)
    found = list(blocks(FileRange(path), separators))
    assert b"".join(found) == (text if not text or text.endswith(b"\n") else text + b"\n")
    for block in found if separators else ():
        assert block[-1] in separators


@pytest.mark.parametrize("text", ["a line\n" * 100, "one long line " * 50, "ä" * 500])
def test_a_file_is_cut_into_three(tmp_path, text):
    path = tmp_path / "a"
    path.write_text(text, encoding="utf-8")
    pieces = [b"".join(blocks(file_range, b" \n")).decode() for [file_range] in split_file(path).values()]
    assert sum(len(piece.rstrip("\n")) for piece in pieces) == pytest.approx(len(text), abs=100 * ("\n" in text) + 1)
    assert len(pieces[0]) == pytest.approx(0.9 * len(text), abs=20)
    assert len(pieces[1]) == pytest.approx(0.05 * len(text), abs=20)
