import hashlib
import pickle
import struct

import numpy as np
import pytest

from trellisnet.data import load
from trellisnet.data.sequences import images
from trellisnet.data.sequences.cifar import read_binary, read_pickle

RNG = np.random.default_rng(0)


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """Write 12 training and 6 test images in MNIST's layout, and replace MNIST's hashes by theirs."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    arrays = {}
    for prefix, count in (("train", 12), ("t10k", 6)):
        arrays[f"{prefix}-images-idx3-ubyte"] = RNG.integers(256, size=(count, 28, 28), dtype=np.uint8)
        arrays[f"{prefix}-labels-idx1-ubyte"] = np.arange(count, dtype=np.uint8) % 10
    for name, array in arrays.items():
        (folder / name).write_bytes(idx(array))
    monkeypatch.setattr(
        images, "MNIST_HASHES", {name: hashlib.sha256(idx(array)).hexdigest() for name, array in arrays.items()}
    )
    return tmp_path, arrays


@pytest.mark.parametrize("compressed", [False, True])
def test_mnist_is_normalised_row_by_row(mnist, compressed, gz):
    root, arrays = mnist
    if compressed:
        for path in (root / "mnist").iterdir():
            path.with_name(f"{path.name}.gz").write_bytes(gz(path.read_bytes()))
            path.unlink()
    data = load("seq-mnist", root)
    inputs, labels = data.splits["train"].take(np.array([3, 11]))
    expected = (arrays["train-images-idx3-ubyte"][[3, 11]].reshape(2, 784, 1) / 255 - 0.1307) / 0.3081
    assert inputs.dtype == np.float32
    np.testing.assert_allclose(inputs, expected, atol=1e-6)
    assert labels.tolist() == [3, 1]
    assert (data.task, data.input_size, data.output_size) == ("classification", 1, 10)


def test_the_permutation_is_fixed(mnist):
    plain, permuted = (
        load(name, mnist[0]).splits["test"].take(np.arange(6))[0] for name in ("seq-mnist", "perm-mnist")
    )
    order = np.random.RandomState(92916).permutation(784)
    assert order[:5].tolist() == [319, 576, 323, 107, 355]  # a change would make results incomparable
    np.testing.assert_array_equal(permuted, plain[:, order])


def test_images_can_be_held_out(mnist):
    data = load("seq-mnist", mnist[0], valid_items=2)
    assert {name: len(items) for name, items in data.splits.items()} == {"train": 10, "test": 6, "valid": 2}
    assert data.splits["valid"].labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match="valid_items must leave some of the 12 training images, got 12"):
        load("seq-mnist", mnist[0], valid_items=12)


VARIED = {"shift": 2, "rotate": 12, "zoom": 0.1}


@pytest.mark.parametrize("name", ["seq-mnist", "perm-mnist"])
def test_training_images_can_be_varied(mnist, name):
    plain, varied = load(name, mnist[0], valid_items=2), load(name, mnist[0], valid_items=2, **VARIED)
    assert varied.splits["train"].variation == images.Variation(**VARIED)
    assert {type(varied.splits[split]) for split in ("valid", "test")} == {images.PixelItems}
    assert {type(items) for items in plain.splits.values()} == {images.PixelItems}
    seen = [next(iter(data.batches("train", 4, shuffle=True))).inputs for data in (plain, varied)]
    assert not seen[0].allclose(seen[1], atol=0.1)
    told = "the training images are varied: shift=2, rotate=12, zoom=0.1"
    assert varied.note == "; ".join(note for note in (plain.note, told) if note)
    with pytest.raises(ValueError, match=r"zoom must be in \[0, 1\), got 1"):
        load(name, mnist[0], zoom=1)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train-images-idx3-ubyte", lambda b, gz: b"", "is empty"),
        ("train-images-idx3-ubyte", lambda b, gz: gz(b)[:500], "truncated or damaged gzip file"),
        ("train-images-idx3-ubyte", lambda b, gz: b[:-1], r"must have 9,424 bytes for shape \(12, 28, 28\), got 9,423"),
        ("train-images-idx3-ubyte", lambda b, gz: b[:9], "must have a header of 16 bytes, got 9"),
        (
            "train-images-idx3-ubyte",
            lambda b, gz: b"<html>" + b,
            "must begin with the magic number 0x00000803 .*0x3c68746d",
        ),
        (
            "train-labels-idx1-ubyte",
            lambda b, gz: b[:-1] + b"\x0a",
            r"labels must be in \[0, 10\), got 10 in record 11",
        ),
        ("t10k-labels-idx1-ubyte", lambda b, gz: b[:-1] + b"\x09", "not MNIST's: the SHA-256 of its content must be "),
    ],
)
def test_bad_mnist_files(mnist, gz, name, change, message):
    path = mnist[0] / "mnist" / name
    path.write_bytes(change(path.read_bytes(), gz))
    with pytest.raises(ValueError, match=f"{name}: {message}"):
        load("seq-mnist", mnist[0])


def cifar_files(folder, form, per_class=1):
    """Write six files in one of the formats, each with `per_class` images per class; return their pixels."""
    folder.mkdir(parents=True)
    written = []
    for i in range(6):
        labels = np.tile(np.arange(10), per_class)
        pixels = RNG.integers(256, size=(len(labels), 3072), dtype=np.uint8)
        name = f"data_batch_{i + 1}" if i < 5 else "test_batch"
        if form == "bin":
            content = np.concatenate([labels.astype(np.uint8)[:, None], pixels], axis=1).tobytes()
            (folder / f"{name}.bin").write_bytes(content)
        else:
            (folder / name).write_bytes(pickle.dumps({"data": pixels, "labels": labels.tolist()}, protocol=2))
        written.append(pixels)
    return written


def test_both_formats_of_cifar_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("trellisnet.data.sequences.images.CLASS_IMAGES", {"train": 5, "test": 1})
    pixels = cifar_files(tmp_path / "cifar-10-batches-bin", "bin")
    data = load("seq-cifar10", tmp_path)
    varied = load("seq-cifar10", tmp_path, mirror=True, **VARIED).splits
    assert varied["train"].variation == images.Variation(mirror=True, **VARIED)
    assert type(varied["test"]) is type(data.splits["train"]) is images.PixelItems
    inputs, labels = data.splits["train"].take(np.array([0, 13]))
    assert inputs.shape == (2, 1024, 3)
    assert labels.tolist() == [0, 3]
    planes = pixels[1][3].reshape(3, 1024)
    np.testing.assert_allclose(inputs[1], (planes.T / 255 - 0.5) / 0.5, atol=1e-6)
    assert {name: len(items) for name, items in data.splits.items()} == {"train": 50, "test": 10}
    python = tmp_path / "python"
    cifar_files(python / "cifar-10-batches-py", "py")
    assert len(load("seq-cifar10", python).splits["train"]) == 50


def test_an_incomplete_cifar_is_refused(tmp_path):
    cifar_files(tmp_path / "cifar-10-batches-bin", "bin")
    with pytest.raises(
        ValueError, match=r"data_batch_1\.bin, .* must have 5,000 images of each class, got .5, .*not CIFAR"
    ):
        load("seq-cifar10", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (bytes(3072), "must have a multiple of 3,073 bytes, one record each, got 3,072"),
        (bytes(3073) + b"\x0b" + bytes(3072), r"labels must be in \[0, 10\), got 11 in record 1"),
    ],
)
def test_bad_binary_files(tmp_path, content, message):
    path = tmp_path / "a.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.bin: {message}"):
        read_binary(path)


def test_compressed_binary_files(tmp_path, gz):
    path = tmp_path / "a.bin.gz"
    path.write_bytes(gz(b"\x07" + bytes(3072)))
    assert read_binary(path)[1].tolist() == [7]
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ValueError, match=r"a\.bin\.gz: truncated or damaged gzip"):
        read_binary(path)


class Evil:
    def __init__(self, call):
        self.call = call

    def __reduce__(self):
        return self.call


ROWS = np.zeros((1, 3072), dtype=np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"nonsense", "not a batch of CIFAR-10's Python version"),
        (pickle.dumps({"data": ROWS, "labels": [1]})[:-40], "not a batch of CIFAR-10's Python version"),
        (pickle.dumps(Evil((eval, ("1/0",)))), r"asks for builtins\.eval, which is not allowed"),
        (pickle.dumps(np.array([Evil((eval, ("1/0",)))])), "not allowed|only arrays of numbers"),
        (pickle.dumps([1]), "must hold a dictionary with 'data' and 'labels'"),
        (pickle.dumps({"data": ROWS}), "must hold a dictionary with 'data' and 'labels'"),
        (pickle.dumps({"data": ROWS, "labels": [1, 2]}), r"'data' must be bytes of shape \(2, 3072\)"),
        (pickle.dumps({"data": ROWS, "labels": [10]}), r"labels must be in \[0, 10\), got 10 in record 0"),
        (pickle.dumps({"data": ROWS, "labels": [0.5]}), "'labels' must be a list of integers"),
    ],
)
def test_bad_pickles(tmp_path, content, message):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"data_batch_1: .*({message})|data_batch_1: {message}"):
        read_pickle(path)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickles_of_all_protocols(tmp_path, protocol):
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({"data": ROWS + 3, "labels": [4], "filenames": ["a"]}, protocol=protocol))
    pixels, labels = read_pickle(path)
    assert (pixels == 3).all()
    assert labels.tolist() == [4]


@pytest.mark.corpora
def test_real_mnist(real_data):
    data = load("perm-mnist", real_data)
    assert {name: len(items) for name, items in data.splits.items()} == {"train": 60_000, "test": 10_000}
    inputs = data.splits["train"].take(np.arange(60_000))[0]
    assert abs(inputs.mean()) < 1e-3
    assert abs(inputs.std() - 1) < 1e-3


@pytest.mark.corpora
def test_real_cifar10(real_data):
    from trellisnet.data.files.places import _files_in, search_places  # noqa: PLC0415
    from trellisnet.data.sequences.images import CIFAR_BINARY, CIFAR_PYTHON  # noqa: PLC0415

    if not any(_files_in(place, form) for place in search_places(real_data) for form in (CIFAR_BINARY, CIFAR_PYTHON)):
        pytest.skip("needs cifar-10-batches-bin or cifar-10-batches-py in $TRELLISNET_DATA (see docs/data.md)")
    data = load("seq-cifar10", real_data)
    assert {name: len(items) for name, items in data.splits.items()} == {"train": 50_000, "test": 10_000}
