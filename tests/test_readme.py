"""The README's Python runs as it stands."""

import re
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]


def test_every_python_block_of_the_readme_runs():
    torch.set_default_dtype(torch.float32)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(blocks) >= 5
    names: dict = {}
    for block in blocks:  # one after the other, as a reader would
        exec(compile(block, "README.md", "exec"), names)


def test_every_make_target_of_the_readme_exists():
    targets = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.M)
    makefile = (ROOT / "Makefile").read_text()
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M)
