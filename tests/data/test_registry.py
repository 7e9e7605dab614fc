import pytest

from trellisnet.data import DATASETS, TextData, load
from trellisnet.data.kinds import KINDS


def test_the_names_of_all_datasets():
    assert set(DATASETS) == {
        *("ptb-word", "ptb-char", "wikitext-2", "wikitext-103", "seq-mnist", "perm-mnist", "seq-cifar10"),
        *("music", "copy-memory", "adding", "python-library", "text", "series", "ts", "multi30k", "translation"),
    }


def test_errors_name_bad_names_and_options(tmp_path):
    with pytest.raises(ValueError, match=r"name must be one of 'ptb-word', .*, got 'ptb'"):
        load("ptb")
    with pytest.raises(ValueError, match=r"option of the dataset 'adding' must be one of 'steps', .*, got 'stesp'"):
        load("adding", stesp=3)
    with pytest.raises(ValueError, match="root belongs to the benchmarks' files; the dataset 'text' needs path"):
        load("text", tmp_path)
    data = load("adding", steps=5)
    with pytest.raises(ValueError, match="split must be one of 'train', 'valid', 'test', got 'dev'"):
        data.batches("dev", 3)


def test_the_kind_of_every_dataset_is_known(tmp_path):
    assert set(KINDS) == set(DATASETS)
    (tmp_path / "text.txt").write_text("some text\n" * 100)
    options = {"text": {"path": tmp_path / "text.txt"}, "python-library": {"characters": 1000}}
    for name in ("text", "python-library", "adding", "copy-memory"):
        data = load(name, **options.get(name, {}))
        kind = "text" if isinstance(data, TextData) else "tokens" if data.task == "tokens" else "sequences"
        assert KINDS[name] == kind
