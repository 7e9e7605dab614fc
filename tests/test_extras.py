import sys

import pytest

from trellisnet.extras import require


def test_a_module_is_returned():
    assert require("json.decoder", "text", "a test").JSONDecoder


@pytest.mark.parametrize(("package", "named"), [(None, "absent"), ("its-name", "its-name")])
def test_the_error_names_package_and_extra(monkeypatch, package, named):
    monkeypatch.setitem(sys.modules, "absent", None)
    with pytest.raises(ImportError, match=rf"^a test needs the {named} package, of the extra 'text'$"):
        require("absent.part", "text", "a test", package)
