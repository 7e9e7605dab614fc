import errno
import hashlib
import multiprocessing
import resource

import pytest

from trellisnet.data.files.cache import cached
from trellisnet.data.text.own import load_text


def entries(cache):
    folder = cache / "entries"
    return [path for path in folder.iterdir() if not path.name.endswith(".lock")] if folder.exists() else []


def test_an_entry_is_built_once():
    calls = []

    def build(folder):
        calls.append(folder)
        (folder / "a").write_text("content")

    first, second = cached("x", "key", build), cached("x", "key", build)
    assert first == second
    assert (first / "a").read_text() == "content"
    assert len(calls) == 1


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt()])
def test_a_failed_build_leaves_nothing(cache, error):
    def build(folder):
        (folder / "a").write_text("half")
        raise error

    with pytest.raises(type(error)):
        cached("x", "key", build)
    assert not entries(cache)


def test_leftovers_of_a_killed_process_are_removed(cache):
    leftover = cache / "entries" / ".x-key.tmp-12345"
    leftover.mkdir(parents=True)
    (leftover / "a").write_text("half")
    entry = cached("x", "key", lambda folder: (folder / "b").touch())
    assert entries(cache) == [entry]


def test_errors_name_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    for place in (in_the_way, "/proc/nothing"):  # the root user may write anywhere else
        monkeypatch.setenv("TRELLISNET_CACHE", str(place))
        with pytest.raises(OSError, match=rf"the cache folder {place}/entries cannot be written .*\$TRELLISNET_CACHE"):
            cached("x", "key", lambda folder: None)


def test_a_full_disk_leaves_no_entry_and_the_text_as_it_was(cache, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("some words\n" * 100_000)
    before = path.stat().st_mtime_ns, path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))  # the system refuses to write more
    try:
        with pytest.raises(
            OSError, match=r"the cache entry .*text-.* cannot be written: File too large; .*\$TRELLISNET_CACHE"
        ):
            load_text(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not entries(cache)
    assert (path.stat().st_mtime_ns, path.read_bytes()) == before
    assert len(load_text(path).splits["train"]) > 900_000


def test_the_error_number_of_a_full_disk_is_kept():
    def build(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        cached("x", "key", build)
    assert caught.value.errno == errno.ENOSPC


def test_errors_of_other_files_are_not_reported_as_cache_errors(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        cached("x", "key", lambda folder: (tmp_path / "missing").read_bytes())
    assert caught.value.filename == str(tmp_path / "missing")


def _load(path, barrier, queue):
    barrier.wait()
    queue.put(hashlib.sha256(load_text(path, "words").splits["train"].tobytes()).hexdigest())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the children use NumPy only
def test_concurrent_processes_build_one_entry(cache, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the same words for all of us\n" * 20_000)
    fork = multiprocessing.get_context("fork")
    barrier, queue = fork.Barrier(4), fork.Queue()
    processes = [fork.Process(target=_load, args=(path, barrier, queue)) for _ in range(4)]
    for process in processes:
        process.start()
    assert len({queue.get(timeout=60) for _ in processes}) == 1
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(entries(cache)) == 1


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": truncate,
    "one bit": flip,
    "overwritten": lambda path: path.write_bytes(b"x" * path.stat().st_size),
    "missing": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_reported_in_one_line_and_built_again(damage, cache, tmp_path, capfd):
    path = tmp_path / "text.txt"
    path.write_text("the words of a text\n" * 100)
    before = load_text(path, "words")
    expected = {split: ids.tolist() for split, ids in before.splits.items()}
    (entry,) = entries(cache)
    files = sorted(entry.iterdir())
    assert [file.name for file in files] == ["checksums.json", "test.npy", "train.npy", "valid.npy", "vocabulary.json"]
    for file in files:
        DAMAGES[damage](file)
        capfd.readouterr()
        again = load_text(path, "words")
        error = capfd.readouterr().err
        assert error.count("\n") == 1
        assert f"the cache entry {entry} is damaged" in error
        assert file.name in error
        assert {split: ids.tolist() for split, ids in again.splits.items()} == expected
        assert again.vocabulary == before.vocabulary
        assert entries(cache) == [entry]
    load_text(path, "words")
    assert not capfd.readouterr().err


def test_a_damaged_entry_in_use_stays_readable(tmp_path, cache):
    path = tmp_path / "text.txt"
    path.write_text("the words of a text\n" * 100)
    mapped = load_text(path, "words").splits["train"]
    before = mapped.tolist()
    (entry,) = entries(cache)
    (entry / "valid.npy").write_bytes(b"")
    load_text(path, "words")
    assert mapped.tolist() == before
