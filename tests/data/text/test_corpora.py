import hashlib
import time
from dataclasses import replace

import numpy as np
import pytest

from trellisnet.data import load
from trellisnet.data.text.characters import MikolovCharacters
from trellisnet.data.text.corpora import CORPORA, load_corpus
from trellisnet.data.text.words import WordTokeniser

FILES = {
    "ptb.train.txt": b" no it was n't <unk> \n but it was \n",
    "ptb.valid.txt": b" it was \n",
    "ptb.test.txt": b" <unk> was it \n",
}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Replace the two Penn treebank corpora by tiny ones of the same layout; return their folder."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    word = replace(CORPORA["ptb-word"], hashes=hashes, tokens=(10, 3, 4), vocabulary_size=7)
    char = replace(CORPORA["ptb-char"], hashes=hashes, tokens=(31, 7, 13), vocabulary_size=15)
    monkeypatch.setitem(CORPORA, "ptb-word", word)
    monkeypatch.setitem(CORPORA, "ptb-char", char)
    return tmp_path


def test_words_of_the_penn_treebank(small):
    data = load_corpus("ptb-word", small)
    assert data.vocabulary.tokens == ["<eos>", "it", "was", "<unk>", "but", "n't", "no"]
    assert data.vocabulary.decode(data.splits["train"]) == "no it was n't <unk>\nbut it was\n"
    assert data.splits["test"].tolist() == [3, 2, 1, 0]
    assert data.splits["test"].dtype == np.uint8


def test_characters_of_the_penn_treebank(small):
    data = load_corpus("ptb-char", small)
    assert data.vocabulary.decode(data.splits["train"]) == "no_it_was_n't_<unk>\nbut_it_was\n"
    assert data.vocabulary.decode(data.splits["valid"]) == "it_was\n"


@pytest.mark.parametrize("content", [b"<html>not found</html>\n", b" it \n"])
def test_a_wrong_file_with_the_right_name_is_refused(small, cache, content):
    (small / "ptb.valid.txt").write_bytes(content)
    with pytest.raises(ValueError, match=r"ptb\.valid\.txt: not the file of that name.*SHA-256 must be .*, got "):
        load_corpus("ptb-word", small)
    assert not (cache / "entries").exists()


def test_an_empty_file_is_refused(small):
    (small / "ptb.test.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"ptb\.test\.txt: is empty"):
        load_corpus("ptb-word", small)


def test_counts_are_checked_where_no_hash_is_known(small, monkeypatch):
    monkeypatch.setitem(CORPORA, "ptb-word", replace(CORPORA["ptb-word"], hashes={}, tokens=(11, 3, 4)))
    with pytest.raises(
        ValueError, match=r"must have \(11, 3, 4\) tokens .* got \(10, 3, 4\) and 7: not the files of ptb-w"
    ):
        load_corpus("ptb-word", small)


def test_a_word_that_is_not_in_the_training_text_is_refused(small, monkeypatch):
    (small / "ptb.train.txt").write_bytes(b" it was \n")
    monkeypatch.setitem(CORPORA, "ptb-word", replace(CORPORA["ptb-word"], hashes={}))
    with pytest.raises(ValueError, match=r"ptb\.test\.txt: has '<unk>', which is not in the training text"):
        load_corpus("ptb-word", small)


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["ptb-word", "ptb-char", "wikitext-2"])
def test_real_counts_and_a_fast_second_load(real_data, name):
    data = load(name, real_data)
    corpus = CORPORA[name]
    assert tuple(len(ids) for ids in data.splits.values()) == corpus.tokens
    assert len(data.vocabulary) == corpus.vocabulary_size
    start = time.perf_counter()
    load(name, real_data)
    assert time.perf_counter() - start < 1


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["ptb-word", "wikitext-2"])
def test_real_words_equal_str_split(real_data, name):
    data = load(name, real_data)
    folder, file = {"ptb-word": ("ptb", "ptb.valid.txt"), "wikitext-2": ("wikitext-2", "wiki.valid.tokens")}[name]
    with open(f"{real_data}/{folder}/{file}", encoding="utf-8") as lines:
        words = [word for line in lines for word in [*line.split(), "<eos>"]]
    assert [data.vocabulary.tokens[i] for i in data.splits["valid"]] == words


@pytest.mark.corpora
def test_real_wikitext_103_valid_and_test(real_data):
    for split, tokens in zip(("valid", "test"), CORPORA["wikitext-103"].tokens[1:], strict=True):
        with open(f"{real_data}/wikitext-103/wiki.{split}.tokens", "rb") as file:
            assert len(WordTokeniser()(file.read())) == tokens


def test_empty_lines_count():
    assert len(WordTokeniser()(b"\n\n a \n")) == 4
    assert len(MikolovCharacters()(b"\n  \n a \n")) == 4
