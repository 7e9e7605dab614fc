"""Without the packages, one sentence names what to install; runs in every environment."""

import importlib
import sys

import pytest


def hide(monkeypatch, *names):
    for name in list(sys.modules):
        if name.split(".")[0] in names or name.startswith(("trellisnet.sklearn", "trellisnet.integrations.")):
            monkeypatch.delitem(sys.modules, name)
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("module", ["trellisnet.sklearn", "trellisnet.integrations.aeon"])
def test_without_scikit_learn(module, monkeypatch):
    hide(monkeypatch, "sklearn")
    with pytest.raises(ImportError, match="needs the scikit-learn package, of the extra 'sklearn'"):
        importlib.import_module(module)


def test_without_aeon(monkeypatch):
    pytest.importorskip("sklearn", reason="needs the extra sklearn")
    hide(monkeypatch, "aeon")
    module = importlib.import_module("trellisnet.integrations.aeon")
    with pytest.raises(ImportError, match="needs the aeon package: pip install aeon"):
        module.AeonClassifier()
