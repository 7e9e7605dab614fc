import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellisnet.data.text import words
from trellisnet.data.text.words import WordTokeniser

LETTERS = st.sampled_from([b"a", b"b", b"\0", b" ", b"\n", b"\t", "é".encode(), b"abcdefgh", b"\xff"])
TEXTS = st.lists(st.lists(LETTERS, max_size=60).map(b"".join), max_size=5)


def expected(texts):
    ids, result = {}, []
    for text in texts:
        found = text.replace(b"\n", b" <eos> ").split()
        result.append([ids.setdefault(word, len(ids)) for word in found])
    return list(ids), result


@given(TEXTS)
def test_words_equal_bytes_split(texts):
    tokeniser = WordTokeniser()
    result = [tokeniser(text).tolist() for text in texts]
    assert (tokeniser._words, result) == expected(texts)


def test_many_words_of_all_lengths():
    rng = np.random.default_rng(0)
    pool = [bytes(rng.integers(33, 127, size=rng.integers(1, 40), dtype=np.uint8)) for _ in range(20_000)]
    texts = [b" ".join(pool[i] for i in rng.integers(len(pool), size=30_000)) for _ in range(3)]
    tokeniser = WordTokeniser()
    result = [tokeniser(text).tolist() for text in texts]
    assert (tokeniser._words, result) == expected(texts)


def test_words_that_share_a_slot(monkeypatch):
    monkeypatch.setattr(words, "TABLE_BITS", 2)
    texts = [b"the quick brown fox jumps over the lazy dog again and again"] * 2
    tokeniser = WordTokeniser()
    assert [tokeniser(text).tolist() for text in texts] == expected(texts)[1]


def test_a_very_long_word_is_an_error():
    with pytest.raises(
        ValueError, match="words must have at most 65,536 bytes, got one of 70,000 that begins with b'aaaa"
    ):
        WordTokeniser()(b"b " + b"a" * 70_000)
