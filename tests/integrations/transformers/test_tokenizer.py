"""The tokenizer gives the ids and texts of the package's own vocabulary."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from trellisnet import TrellisLM, Vocabulary
from trellisnet.data.text.bpe import BpeTokeniser
from trellisnet.data.text.ranges import FileRange
from trellisnet.integrations.transformers import TrellisNetTokenizer

TEXT = "the cat sat on the mat\nthe <unk> cat <pad> sat\n"
CHARACTERS = Vocabulary(sorted(set(TEXT + "äö\t")), "characters")
WORDS = Vocabulary(["the", "<eos>", "cat", "sat", "on", "mat", "<unk>"], "words")


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text(TEXT * 20)
    learned = BpeTokeniser([FileRange(file)], 280)
    return TrellisNetTokenizer(vocabulary=Vocabulary(learned.tokens(), "bpe", learned.merges))


@settings(max_examples=25)
@given(st.text(alphabet=CHARACTERS.tokens))
def test_characters_round_trip(text):
    tokenizer = TrellisNetTokenizer(vocabulary=CHARACTERS)
    assert tokenizer(text).input_ids == CHARACTERS.encode(text)
    assert tokenizer.decode(tokenizer(text).input_ids) == text


@settings(max_examples=25)
@given(st.text())
def test_bpe_round_trips_any_text(bpe, text):
    ids = bpe(text).input_ids
    assert ids == bpe.vocabulary.encode(text)
    assert bpe.decode(ids) == bpe.decode(ids, skip_special_tokens=True) == text


@settings(max_examples=25)
@given(st.lists(st.sampled_from([*WORDS.tokens, "dog"])))
def test_words_round_trip(words):
    tokenizer = TrellisNetTokenizer(vocabulary=WORDS)
    text = WORDS.decode(WORDS.encode(" ".join(words)))
    ids = tokenizer(text).input_ids
    assert ids == WORDS.encode(text)
    assert tokenizer.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True) == WORDS.decode(ids)


def test_saved_and_loaded(bpe, tmp_path):
    for vocabulary in (CHARACTERS, WORDS, bpe.vocabulary):
        lm = TrellisLM(len(vocabulary), 4, 8, 2, vocabulary=vocabulary)
        lm.save_pretrained(tmp_path)
        of_ours = AutoTokenizer.from_pretrained(tmp_path)  # a folder that transformers has not written
        of_ours.save_pretrained(tmp_path)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
        assert tokenizer.vocabulary == of_ours.vocabulary == vocabulary
        assert tokenizer.padding_side == "left"
        text = "the cat sat\n"
        assert tokenizer(text).input_ids == vocabulary.encode(text)
        assert tokenizer.decode(tokenizer(text).input_ids) == vocabulary.decode(vocabulary.encode(text))
        assert tokenizer.convert_tokens_to_string(tokenizer.tokenize(text)) == vocabulary.decode(
            vocabulary.encode(text)
        )
        for file in tmp_path.iterdir():
            file.unlink()


def test_the_pad_token_is_no_token_of_the_text():
    tokenizer = TrellisNetTokenizer(vocabulary=CHARACTERS)
    assert tokenizer.pad_token_id == len(CHARACTERS) == len(tokenizer) - 1
    assert tokenizer.pad_token_id not in tokenizer("the <pad>").input_ids
    batch = tokenizer(["cat", "on"], padding=True)
    assert batch.attention_mask == [[1, 1, 1], [0, 1, 1]]
    assert tokenizer.batch_decode(batch.input_ids) == ["cat", "<pad>on"]
    assert tokenizer.batch_decode(batch.input_ids, skip_special_tokens=True) == ["cat", "on"]
    with_pad = TrellisNetTokenizer(vocabulary=Vocabulary(["<pad>", "<eos>"], "words"))
    assert with_pad.pad_token == "<<pad>>"
    assert with_pad.pad_token_id == 2


def test_bad_input(tmp_path):
    tokenizer = TrellisNetTokenizer(vocabulary=CHARACTERS)
    with pytest.raises(ValueError, match="text must be of the vocabulary's characters, got 'X' at position 1"):
        tokenizer("tX")
    with pytest.raises(ValueError, match="clean_up_tokenization_spaces must be False"):
        tokenizer.decode([1], clean_up_tokenization_spaces=True)
    with pytest.raises(ValueError, match=r"filename_prefix must be None: models read vocabulary.json, got 'my'"):
        tokenizer.save_pretrained(tmp_path, filename_prefix="my")
    TrellisLM(9, 4, 8, 2).save_pretrained(tmp_path)
    with pytest.raises((ValueError, OSError), match=r"vocabulary"):
        AutoTokenizer.from_pretrained(tmp_path)
