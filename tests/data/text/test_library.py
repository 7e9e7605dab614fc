import numpy as np
import pytest

from trellisnet.data import load
from trellisnet.data.text.library import load_library


def test_the_library_has_megabytes_of_source_code():
    data = load("python-library")
    assert len(data.splits["train"]) > 1_000_000
    assert all(len(data.splits[split]) > 50_000 for split in ("valid", "test"))
    assert set(data.vocabulary.tokens) <= {"\n", *map(chr, range(32, 127))}
    assert "def " in data.vocabulary.decode(np.asarray(data.splits["test"]))


def test_a_new_module_does_not_change_the_split_of_others(tmp_path):
    names = [f"module{i}" for i in range(60)]
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"# {name} é\t\n")
    splits = load_library(tmp_path).splits
    (tmp_path / "another.py").write_text("pass\n")
    more = load_library(tmp_path)
    assert [len(ids) for ids in more.splits.values()] == [
        len(splits["train"]) + 5,
        len(splits["valid"]),
        len(splits["test"]),
    ]
    assert "?" in more.vocabulary.tokens


def test_a_library_without_source_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no file: the text for 'train' is empty"):
        load_library(tmp_path)
