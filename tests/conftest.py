import importlib.util
import os

import hypothesis
import pytest
import torch

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None
REAL_DATA = os.environ.get("TRELLISNET_DATA")

hypothesis.settings.register_profile("untimed", deadline=None)  # how long a test takes depends on the machine
hypothesis.settings.load_profile("untimed")
torch.set_num_threads(1)  # the tests' tensors are small: threads would mostly wait for each other


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Nothing is written into the user's cache, nor read from it; programs that tests start inherit that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLISNET_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _exact():
    """Every test computes in float64 from a fixed seed, so that tolerances mean something."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(autouse=True)
def _blank_charts(request, monkeypatch):
    """Charts are blank but in tests marked `charts`: drawing them takes as long as the tiny trainings before them."""
    if HAS_MATPLOTLIB and request.node.get_closest_marker("charts") is None:
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **_: file.write("<svg/>"))


@pytest.fixture
def real_data():
    """The folder of the real corpora, which tests marked `corpora` need."""
    if not REAL_DATA:
        pytest.skip("needs the real corpora: set $TRELLISNET_DATA to a folder that has them (see docs/data.md)")
    return REAL_DATA
