import json

import pytest

from trellisnet.data.files import columns as module
from trellisnet.data.files.columns import check_output, write_columns

COLUMNS = {"name": ["a,b", "ü\n"], "count": [1, 2], "value": [0.1 + 0.2, float("nan")], "none": [None, 1.5]}


def test_csv(tmp_path):
    write_columns(tmp_path / "out.csv", COLUMNS)
    assert (tmp_path / "out.csv").read_text(encoding="utf-8") == 'name,count,value,none\n"a,b",1,0.3,\n"ü\n",2,,1.5\n'


def test_json_lines(tmp_path):
    write_columns(tmp_path / "out.jsonl", COLUMNS)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows[0] == {"name": "a,b", "count": 1, "value": 0.3, "none": None}
    assert rows[1] == {"name": "ü\n", "count": 2, "value": None, "none": 1.5}


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write_columns(tmp_path / "out.parquet", COLUMNS)
    read = parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert read["name"] == COLUMNS["name"]
    assert read["none"] == COLUMNS["none"]


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "out.csv").write_text("mine")
    with pytest.raises(FileExistsError, match=r"out\.csv exists already"):
        write_columns(tmp_path / "out.csv", COLUMNS)
    assert (tmp_path / "out.csv").read_text() == "mine"


def test_nothing_is_half_written(tmp_path):
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is longer"):
        write_columns(tmp_path / "out.jsonl", {"a": [1], "b": [1, 2]})
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"out\.xlsx: must end in \.csv, \.parquet, \.jsonl"):
        check_output(tmp_path / "out.xlsx")
    with pytest.raises(FileNotFoundError, match=r"the folder .*no does not exist"):
        check_output(tmp_path / "no" / "out.csv")

    def missing():
        raise ImportError("Parquet files need the pyarrow package")

    monkeypatch.setattr(module, "require_pyarrow", missing)
    with pytest.raises(ImportError, match="pyarrow"):
        check_output(tmp_path / "out.parquet")
