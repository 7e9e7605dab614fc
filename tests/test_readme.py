"""The Python of the README and of the documentation runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if "```python" in page.read_text()]
    path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if "```python" in path.read_text()
]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_python_block_runs(page):
    torch.set_default_dtype(torch.float32)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    names: dict = {}
    for block in blocks:  # one after the other, as a reader would
        exec(compile(block, page.name, "exec"), names)


def test_every_make_target_of_the_readme_exists():
    targets = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.M)
    makefile = (ROOT / "Makefile").read_text()
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M)
