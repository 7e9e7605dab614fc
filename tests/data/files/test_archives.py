import io
import tarfile
import zipfile

import pytest

from trellisnet.data.files.archives import unpack


def test_a_link_is_not_followed(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("x/a.txt")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        archive.addfile(link)
    with pytest.raises(ValueError, match=r"evil\.tar: x/a\.txt must be a regular file"):
        unpack(path, ["x/a.txt"], tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_nothing_is_written_outside_the_folder(tmp_path):
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../a.txt", "evil")
        archive.writestr("x/a.txt", "good")
    unpack(path, ["x/a.txt"], tmp_path / "out")
    unpack(path, ["../a.txt"], tmp_path / "other")
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.txt")} == {"out/a.txt", "other/a.txt"}
    assert (tmp_path / "out" / "a.txt").read_text() == "good"


def test_errors_name_a_missing_member(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/a.txt", "good")
    with pytest.raises(ValueError, match=r"a\.zip: must hold x/b\.txt"):
        unpack(path, ["x/b.txt"], tmp_path / "out")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x1f\x8b" + bytes(50)])
def test_a_file_that_is_not_an_archive_is_an_error(tmp_path, content):
    path = tmp_path / "a.tgz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.tgz: damaged, truncated or no archive"):
        unpack(path, ["x"], tmp_path)


def test_a_truncated_archive_leaves_nothing(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("x/a.bin")
        member.size = 2**20
        archive.addfile(member, io.BytesIO(bytes(range(256)) * 2**12))
    path = tmp_path / "a.tgz"
    path.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    with pytest.raises(ValueError, match=r"a\.tgz: damaged"):
        unpack(path, ["x/a.bin"], tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
