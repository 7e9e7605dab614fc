"""The Python of docs/data.md runs as it stands."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "data.md"


def test_every_python_block_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.S)
    assert len(blocks) >= 7
    names: dict = {}
    for block in blocks:
        exec(compile(block, DOCS.name, "exec"), names)
    assert names["gestures"].input_size == 2
    assert names["sensors"].output_size == 3
    assert names["power"].output_size == 24
    assert (tmp_path / "vocabulary.json").exists()
