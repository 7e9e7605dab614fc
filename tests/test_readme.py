"""The Python of the README and of the documentation runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


TEXTS = {path.name: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if "```python" in text])
def test_every_python_block_runs(name, tmp_path, monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.chdir(tmp_path)  # some of it writes files
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", TEXTS[name], re.S):  # one after the other, as a reader would
        exec(compile(block, name, "exec"), names)


def test_every_make_target_of_the_readme_exists():
    targets = re.findall(r"^make (\w+)", TEXTS["README.md"], re.M)
    makefile = (ROOT / "Makefile").read_text()
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M)
