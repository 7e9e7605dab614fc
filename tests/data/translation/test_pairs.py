"""Parallel text: what is read, what is refused, and batches of similar length."""

import gzip

import numpy as np
import pytest

from trellisnet.data import load
from trellisnet.data.batches import ItemBatches
from trellisnet.data.translation import multi30k
from trellisnet.data.translation.data import PADDING, PairItems
from trellisnet.models.translation import encode_sentence, end_of_sentence

LINES = [f"das ist Satz {i}" for i in range(40)]
OTHER = [f"this is sentence {i}" for i in range(40)]


@pytest.fixture
def files(tmp_path):
    source, target = tmp_path / "a.de", tmp_path / "a.en"
    source.write_text("\n".join(LINES) + "\n")
    target.write_text("\n".join(OTHER) + "\n")
    return source, target


def sentences(data, split):
    pairs = [data.splits[split].pair(i) for i in range(len(data.splits[split]))]
    return [(data.source.decode(one).strip(), data.target.decode(other).strip()) for one, other in pairs]


@pytest.mark.parametrize("kind", ["bpe", "words", "characters"])
def test_sentences_are_read_with_a_line_end(files, kind):
    data = load("translation", path=files[0], target=files[1], kind=kind)
    assert {split: len(items) for split, items in data.splits.items()} == {"train": 36, "valid": 2, "test": 2}
    if kind == "bpe":  # words and characters of validation may be unknown
        assert sentences(data, "valid") == [(LINES[0], OTHER[0]), (LINES[20], OTHER[20])]
        assert sentences(data, "test")[0] == (LINES[10], OTHER[10])
    for items in data.splits.values():
        for i in range(len(items)):
            source, target = items.pair(i)
            assert source[-1] == end_of_sentence(data.source)
            assert target[-1] == end_of_sentence(data.target)
    assert encode_sentence(data.target, f" {OTHER[1]} ") == data.splits["train"].pair(0)[1].tolist()


def test_tabs_and_gzip_give_the_same(files, tmp_path):
    expected = load("translation", path=files[0], target=files[1], kind="characters", shared=True)
    table = tmp_path / "pairs.tsv.gz"
    content = "".join(f"{one}\t{other}\n" for one, other in zip(LINES, OTHER, strict=True))
    table.write_bytes(gzip.compress(content.encode()))
    found = load("translation", path=table, kind="characters", shared=True)
    assert found.source is found.target
    assert sentences(found, "train") == sentences(expected, "train")


def test_a_batch_is_padded():
    items = PairItems([[1, 2, 0], [3, 0]], [[4, 0], [5, 6, 7, 0]])
    inputs, targets = items.take(np.array([0, 1]), 3)
    assert inputs.tolist() == [[1, 2, 0], [3, 0, 0]]
    assert targets.tolist() == [[4, 0, PADDING, PADDING], [5, 6, 7, 0]]


def test_shuffled_batches_have_similar_lengths_and_every_sentence_once():
    lengths = np.random.default_rng(1).integers(1, 40, 1000)
    items = PairItems([[1] * n for n in lengths], [[i] for i in range(1000)])
    batches = ItemBatches(items, 8, shuffle=True, seed=3)
    seen, spread = [], []
    for batch in batches:
        seen += batch.targets[:, 0].tolist()
        spread.append(int(batch.lengths.max() - batch.lengths.min()))
    assert sorted(seen) == list(range(1000))
    assert np.mean(spread) < 4  # a random batch of eight spreads over 30
    assert seen[:8] != sorted(seen[:8])
    second = [i for batch in batches for i in batch.targets[:, 0].tolist()]
    assert second != seen
    again = ItemBatches(items, 8, shuffle=True, seed=3)
    assert [i for batch in again for i in batch.targets[:, 0].tolist()] == seen


def test_shuffled_batches_have_little_padding_on_both_sides():
    generator = np.random.default_rng(1)
    lengths = generator.integers(5, 15, 2000)
    others = lengths + generator.integers(-3, 4, 2000)
    items = PairItems([[1] * n for n in lengths], [[1] * n for n in others])
    batches = ItemBatches(items, 8, shuffle=True, drop_last=True)
    real = [(int(batch.lengths.sum()), int((batch.targets != PADDING).sum())) for batch in batches]
    whole = [(batch.inputs.numel(), batch.targets.numel()) for batch in batches]
    assert (np.sum(real, 0) > 0.97 * np.sum(whole, 0)).all()


def test_the_sentences_that_no_batch_has_are_others_in_every_epoch():
    items = PairItems([[1] * (i + 1) for i in range(11)], [[i] for i in range(11)])
    batches = ItemBatches(items, 4, shuffle=True, drop_last=True)
    epochs = [{i for batch in batches for i in batch.targets[:, 0].tolist()} for _ in range(5)]
    assert all(len(epoch) == 8 for epoch in epochs)
    assert len(set.union(*epochs)) == 11


def test_two_processes_share_every_batch():
    items = PairItems([[1] * (i % 7 + 1) for i in range(60)], [[i] for i in range(60)])
    whole = [batch.targets[:, 0].tolist() for batch in ItemBatches(items, 4, shuffle=True)]
    shares = [ItemBatches(items, 4, shuffle=True, rank=rank, world_size=2) for rank in range(2)]
    parts = [[batch.targets[:, 0].tolist() for batch in share] for share in shares]
    assert [one + other for one, other in zip(*parts, strict=True)] == whole


def test_bad_files_are_refused(files, tmp_path):
    source, target = files
    target.write_text("\n".join(OTHER[:-1]) + "\n")
    with pytest.raises(ValueError, match="must have equally many lines, got 40 and 39"):
        load("translation", path=source, target=target)
    target.write_text("\n".join(["", *OTHER[1:]]) + "\n")
    with pytest.raises(ValueError, match=r"line 1 of .*a\.en: the target side is empty"):
        load("translation", path=source, target=target)
    with pytest.raises(ValueError, match=r"line 1 of .* must have source and target, separated by one tab, got 1"):
        load("translation", path=source)
    source.write_text("one\ttwo\n")
    with pytest.raises(ValueError, match="must have at least 20 sentence pairs, got 1"):
        load("translation", path=source)
    source.write_bytes(b"\xff\xfe\n")
    with pytest.raises(ValueError, match="must be text in UTF-8"):
        load("translation", path=source)
    with pytest.raises(FileNotFoundError, match="path must be a file"):
        load("translation", path=tmp_path / "nothing.txt")


def test_multi30k_checks_its_files_and_languages(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="source must be one of 'de', 'en', got 'fr'"):
        load("multi30k", source="fr")
    with pytest.raises(ValueError, match="must be two languages, got 'en' twice"):
        load("multi30k", source="en")
    folder = tmp_path / "multi30k"
    folder.mkdir()
    for name in multi30k.HASHES:
        (folder / name).write_bytes(gzip.compress("".join(f"{name} {i}\n" for i in range(3)).encode()))
    with pytest.raises(ValueError, match="not the file of that name that the literature uses"):
        load("multi30k", root=tmp_path)
    monkeypatch.setattr(multi30k, "check_content", lambda *_: None)
    with pytest.raises(ValueError, match="must have 29,000 sentences, got 3"):
        load("multi30k", root=tmp_path)
    monkeypatch.setattr(multi30k, "PAIRS", {"train": 3, "valid": 3, "test": 3})
    data = load("multi30k", root=tmp_path, vocabulary_size=300)
    assert sentences(data, "test")[2] == ("test_2016_flickr.de.gz 2", "test_2016_flickr.en.gz 2")
