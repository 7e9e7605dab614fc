import json
import pickle

import pytest

from trellisnet.data import Vocabulary


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("words", "the cat\n\nsat on\nthe <unk> mat\n"),
        ("words", "no end of line"),
        ("characters", "the cat\n\tsät  ☃\n"),
    ],
)
def test_decoding_undoes_encoding(kind, text, tmp_path):
    pieces = list(text) if kind == "characters" else [*text.split(), "<eos>"]
    vocabulary = Vocabulary(dict.fromkeys(pieces), kind)
    assert vocabulary.decode(vocabulary.encode(text)) == text
    vocabulary.save(tmp_path)
    assert Vocabulary.load(tmp_path) == vocabulary
    assert json.loads((tmp_path / "vocabulary.json").read_text(encoding="utf-8"))["kind"] == kind
    assert pickle.loads(pickle.dumps(vocabulary)) == vocabulary


def test_only_ascii_white_space_separates_words():
    assert Vocabulary(["a\u00a0b", "c"], "words").encode("a\u00a0b\tc") == [0, 1]


def test_unknown_tokens():
    assert Vocabulary(["a", "<unk>"], "characters").encode("abba") == [0, 1, 1, 0]
    with pytest.raises(ValueError, match="text must be of the vocabulary's characters, got 'b' at position 1"):
        Vocabulary(["a"], "characters").encode("ab")
    with pytest.raises(ValueError, match="text must be of the vocabulary's words, got '<eos>' at position 1"):
        Vocabulary(["a"], "words").encode("a\n")


def test_errors_name_bad_arguments():
    with pytest.raises(TypeError, match="text must be a string, got bytes"):
        Vocabulary(["a"], "characters").encode(b"a")
    with pytest.raises(ValueError, match="kind must be one of 'characters', 'words', 'bpe', got 'letters'"):
        Vocabulary(["a"], "letters")
    with pytest.raises(ValueError, match="tokens must differ, got 'a' more than once"):
        Vocabulary(["a", "b", "a"], "words")
    with pytest.raises(ValueError, match="merges belong to kind 'bpe'"):
        Vocabulary(["a"], "words", [("a", "b")])
    with pytest.raises(ValueError, match=r"ids must be in \[0, 1\), got 1"):
        Vocabulary(["a"], "words").decode([0, 1])


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"tokens": ["a"], "kind": "letters"}'])
def test_a_file_that_is_not_a_vocabulary_is_an_error(tmp_path, content):
    (tmp_path / "vocabulary.json").write_text(content)
    with pytest.raises(ValueError, match=r"vocabulary\.json: not a vocabulary"):
        Vocabulary.load(tmp_path)
