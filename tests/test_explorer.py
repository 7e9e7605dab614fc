"""The documentation's interactive page computes what `net.explain` does; run in a browser without a window."""

import json
import random
import re
import shutil
import subprocess
from dataclasses import asdict
from html import unescape
from pathlib import Path

import pytest
import torch

from trellisnet import TrellisNet

PAGE = Path(__file__).parents[1] / "docs" / "explorer.html"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--virtual-time-budget=2000"]
needs_browser = pytest.mark.skipif(BROWSER is None, reason="the page is tested in Chromium, which is not installed")


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)  # as the page counts bytes


def opened(page, tmp_path, query=""):
    """The page's elements after its script has run."""
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [BROWSER, *FLAGS, profile, "--dump-dom", f"{page.as_uri()}{query}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def scripted(tmp_path, script):
    """What a script prints that runs after the page's own."""
    page = tmp_path / "page.html"
    text = PAGE.read_text(encoding="utf-8")
    print_it = f"document.title = JSON.stringify((() => {{ {script} }})());"
    page.write_text(text.replace("</body>", f"<script>{print_it}</script></body>"), encoding="utf-8")
    found = re.search(r"<title>(.*?)</title>", opened(page, tmp_path), re.S)
    return json.loads(unescape(found[1]))


def some_settings(count):
    draw = random.Random(0)
    for _ in range(count):
        steps = draw.choice([1, 2, 9, 64, 300])
        yield {
            "steps": steps,
            "layers": draw.randint(1, 14),
            "taps": draw.randint(2, 4),
            "dilation": draw.choice([[1], [2], [1, 2, 4, 8], [3, 1], [1, 2, 4, 8, 16, 32]]),
            "tail": draw.choice([None, 1, draw.randint(1, steps), steps]),
            "path": draw.choice(["layers", "layers", "sweeps", "steps"]),
            "width": draw.randint(1, 100),
            "input": draw.choice([1, 2, 7, 40]),
            "batch": draw.randint(1, 9),
        }


def explained(settings):
    net = TrellisNet(
        settings["input"],
        settings["width"],
        num_layers=settings["layers"],
        kernel_size=settings["taps"],
        dilation=settings["dilation"],
    )
    told = net.explain(settings["steps"], settings["batch"], tail=settings["tail"], path=settings["path"])
    return [asdict(figures) for figures in told.nets]


@needs_browser
def test_fifty_settings_give_the_numbers_of_the_plan(tmp_path):
    settings = list(some_settings(50))
    found = scripted(tmp_path, f"return {json.dumps(settings)}.map(figures);")
    assert len(found) == 50
    for asked, figures in zip(settings, found, strict=True):
        assert figures == explained(asked), asked


@needs_browser
def test_the_address_chooses_the_settings_and_the_table_shows_them(tmp_path):
    query = "?steps=784&layers=11&taps=2&dilation=1,1,2,4,8,16,32,64,128,256,512&tail=1&width=130&input=1&batch=32"
    text = opened(PAGE, tmp_path, query)
    asked = {"steps": 784, "layers": 11, "taps": 2, "tail": 1, "path": "layers", "width": 130, "input": 1, "batch": 32}
    nets = explained({**asked, "dilation": [1, 1, *(2**i for i in range(1, 10))]})
    rows = {name: re.findall(r"<td>(.*?)</td>", row) for name, row in re.findall(r'data-name="(\w+)">(.*?)</tr>', text)}
    for name, (_, *cells) in rows.items():
        assert cells == ["unlimited" if net[name] is None else f"{net[name]:,}" for net in nets]
    assert set(rows) == set(nets[0]) - {"name"}


@needs_browser
def test_the_sliders_move_the_page(tmp_path):
    script = """
      const set = (name, value) => { form.elements[name].value = value; form.querySelector(`[name=${name}]`)
        .dispatchEvent(new Event("input", {bubbles: true})); };
      const cells = () => document.querySelector("[data-name=cells]").children[1].textContent;
      const lit = () => { const canvas = document.getElementById("grid"), data = canvas.getContext("2d")
        .getImageData(0, 0, canvas.width, canvas.height).data; let count = 0;
        for (let i = 0; i < data.length; i += 4) count += data[i + 2] > 180 && data[i] < 90; return count; };
      const seen = [[cells(), lit()]];
      set("tail", 64); seen.push([cells(), lit()]);
      set("tail", 1); set("doublings", 0); seen.push([cells(), lit(), form.dilation.value]);
      set("layers", 3); seen.push([cells(), lit()]);
      form.path.value = "sweeps"; form.dispatchEvent(new Event("input")); seen.push([cells(), lit()]);
      set("dilation", "1,x"); seen.push(document.getElementById("error").textContent);
      return seen;"""
    first, whole, plain, shallow, sweeps, error = scripted(tmp_path, script)
    settings = {"steps": 64, "layers": 8, "taps": 2, "dilation": [1, 2, 4, 8], "tail": 1, "path": "layers"}
    settings |= {"width": 64, "input": 16, "batch": 16}
    assert first[0] == f"{explained(settings)[0]['cells']:,}"
    assert whole[0] == "512"
    assert plain[0] == "36"  # 8 + 7 + ... + 1
    assert plain[2] == "1"
    assert shallow[0] == "6"
    assert sweeps[0] == "192"
    assert whole[1] > first[1] > plain[1] > shallow[1] > 0  # lit points of the drawing
    assert 'got "1,x"' in error


def test_the_page_needs_nothing_but_itself():
    text = PAGE.read_text(encoding="utf-8")
    assert not re.search(r"https?://|src=|<link|import |fetch\(|XMLHttp", text)
