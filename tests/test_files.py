import os
import stat

import pytest

from trellisnet.files import replacing


def test_all_files_are_replaced_together(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    paths[0].write_text("old")
    with replacing(*paths) as temporary:
        for i, file in enumerate(temporary):
            file.write_text(f"new {i}")
        assert paths[0].read_text() == "old"
    assert [path.read_text() for path in paths] == ["new 0", "new 1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_failure_leaves_the_old_files(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")

    def fail():
        with replacing(path, tmp_path / "b") as (first, _):
            first.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="checks POSIX permissions")
def test_files_get_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "a") as (file,):
            file.write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
