"""Images as sequences of pixels: sequential and permuted MNIST, sequential CIFAR-10."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import positive_int
from trellisnet.data.batches import Items
from trellisnet.data.files.download import Download
from trellisnet.data.files.places import Source, find
from trellisnet.data.sequences.binary import check_labels, read_bytes
from trellisnet.data.sequences.cifar import read_binary, read_pickle
from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.sequences.idx import parse_idx
from trellisnet.data.sequences.variation import Variation

MNIST_SHAPE = (28, 28)
PERMUTATION_SEED = 92916  # as in several published programs; NumPy guarantees that RandomState never changes
CLASS_IMAGES = {"train": 5000, "test": 1000}  # images per class of CIFAR-10
CIFAR_LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class PixelItems(Items):
    """Images that are stored as bytes and normalised on access.

    Args:
        pixels: (N, T, C), bytes.
        labels: (N,).
        values: (256,), the normalised value of each byte.
        order: (T,), a permutation of the steps; None: keep the order.
    """

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        labels: NDArray[np.int64],
        values: NDArray[np.float32],
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self.pixels, self.labels, self.values, self.order = pixels, labels, values, order

    def __len__(self) -> int:
        return len(self.labels)

    def take(
        self, indices: NDArray[np.int64], steps: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return pixels (B, T, C) and labels (B,) of some images."""
        pixels = self.pixels[indices]
        return self.values[pixels if self.order is None else pixels[:, self.order]], self.labels[indices]

    def subset(self, rows: slice) -> PixelItems:
        """Return a slice of the images."""
        return PixelItems(self.pixels[rows], self.labels[rows], self.values, self.order)


class VariedPixels(PixelItems):
    """Images of which training sees variations.

    Args:
        items: the images.
        variation: what may change.
    """

    def __init__(self, items: PixelItems, variation: Variation) -> None:
        super().__init__(items.pixels, items.labels, items.values, items.order)
        self.amounts, self.draws = astuple(variation), variation.draws

    @property
    def variation(self) -> Variation:
        """What may change."""
        return Variation(*self.amounts)

    def vary(self, inputs: NDArray[np.float32], draws: NDArray[np.float64]) -> NDArray[np.float32]:
        """Vary pixels (B, T, C), which may be permuted."""
        count, steps, channels = inputs.shape
        order = np.arange(steps) if self.order is None else self.order
        images = np.empty_like(inputs)
        images[:, order] = inputs
        side = math.isqrt(steps)
        planes = np.ascontiguousarray(images.transpose(0, 2, 1)).reshape(count, channels, side, side)
        varied = self.variation.apply(planes, draws).reshape(count, channels, steps)
        return np.ascontiguousarray(varied.transpose(0, 2, 1)[:, order])


def load_mnist(
    root: str | Path | None = None,
    *,
    permuted: bool = False,
    valid_items: int = 0,
    shift: float = 0,
    rotate: float = 0,
    zoom: float = 0,
) -> SequenceData:
    """Load MNIST as sequences of 784 pixels, normalised with mean 0.1307 and deviation 0.3081.

    Args:
        root: a folder to search first.
        permuted: permute the pixels by `numpy.random.RandomState(92916).permutation(784)`; otherwise they are in order,
            row by row.
        valid_items: the last n training images become the split "valid"; 0: there is none.
        shift: of each training image, a part is read whose middle is up to n pixels away, across and down, drawn anew
            in every epoch.
        rotate: the part is turned by up to n degrees.
        zoom: it is larger or smaller by up to this share.

    Raises:
        ValueError: a file is not MNIST's, or an option is out of range.
        MissingDataError: the files are not found and cannot be downloaded.
    """
    variation = Variation(shift, rotate, zoom)
    _, files = find([MNIST], root)
    order = np.random.RandomState(PERMUTATION_SEED).permutation(MNIST_SHAPE[0] * MNIST_SHAPE[1]) if permuted else None
    splits = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images = _read_mnist(files, f"{prefix}-images-idx3-ubyte", 3)
        labels = _read_mnist(files, f"{prefix}-labels-idx1-ubyte", 1).astype(np.int64)
        splits[split] = PixelItems(images.reshape(len(images), -1, 1), labels, _normalised(0.1307, 0.3081), order)
    name = "perm-mnist" if permuted else "seq-mnist"
    told = f"the order of the pixels is that of NumPy's RandomState({PERMUTATION_SEED})" if permuted else ""
    note, prepared = _note(variation, told), _prepared(splits, valid_items, variation)
    digits = tuple(str(digit) for digit in range(10))
    return SequenceData(name, "classification", 1, 10, prepared, note, digits)


def load_cifar10(
    root: str | Path | None = None,
    *,
    valid_items: int = 0,
    shift: float = 0,
    rotate: float = 0,
    zoom: float = 0,
    mirror: bool = False,
) -> SequenceData:
    """Load CIFAR-10 as sequences of 1,024 pixels with three channels, row by row, scaled to values from -1 to 1.

    Args:
        root: a folder to search first, for the binary or the Python version of the files.
        valid_items: the last n training images become the split "valid"; 0: there is none.
        shift: of each training image, a part is read whose middle is up to n pixels away, across and down, drawn anew
            in every epoch.
        rotate: the part is turned by up to n degrees.
        zoom: it is larger or smaller by up to this share.
        mirror: it is mirrored left to right, in half of the cases.

    Raises:
        ValueError: a file is not CIFAR-10's, or an option is out of range.
        MissingDataError: the files are not found and cannot be downloaded.
    """
    variation = Variation(shift, rotate, zoom, mirror)
    source, files = find([CIFAR_BINARY, CIFAR_PYTHON], root)
    read = read_binary if source is CIFAR_BINARY else read_pickle
    splits = {}
    for split, names in (("train", source.files[:5]), ("test", source.files[5:])):
        expected = CLASS_IMAGES[split]
        contents = [read(files[name]) for name in names]
        labels = np.concatenate([labels for _, labels in contents])
        if (counts := np.bincount(labels, minlength=10).tolist()) != [expected] * 10:
            where = ", ".join(str(files[name]) for name in names)
            raise ValueError(f"{where}: must have {expected:,} images of each class, got {counts}: not CIFAR-10")
        planes = np.concatenate([images for images, _ in contents]).reshape(len(labels), 3, -1)
        splits[split] = PixelItems(np.ascontiguousarray(planes.transpose(0, 2, 1)), labels, _normalised(0.5, 0.5))
    prepared = _prepared(splits, valid_items, variation)
    return SequenceData("seq-cifar10", "classification", 3, 10, prepared, _note(variation), CIFAR_LABELS)


def _prepared(splits: dict[str, PixelItems], held_out: int, variation: Variation) -> dict[str, PixelItems]:
    """Hold the last training images out as the split "valid", and vary the others."""
    training = splits["train"]
    if positive_int("valid_items", held_out, minimum=0) >= len(training):
        raise ValueError(f"valid_items must leave some of the {len(training):,} training images, got {held_out}")
    cut = len(training) - held_out
    valid = {"valid": training.subset(slice(cut, None))} if held_out else {}
    training = training.subset(slice(cut))
    return {**splits, "train": VariedPixels(training, variation) if variation != Variation() else training, **valid}


def _note(variation: Variation, *others: str) -> str:
    varied = f"the training images are varied: {variation}" if variation != Variation() else ""
    return "; ".join(note for note in (*others, varied) if note)


def _normalised(mean: float, deviation: float) -> NDArray[np.float32]:
    return ((np.arange(256) / 255 - mean) / deviation).astype(np.float32)


def _read_mnist(files: Mapping[str, Path], name: str, dimensions: int) -> NDArray[np.uint8]:
    path = files[name]
    content = read_bytes(path)
    array = parse_idx(content, dimensions, path)
    if dimensions == 1:
        check_labels(path, array, 10)
    # Fashion-MNIST and others use the same file names
    if (found := hashlib.sha256(content).hexdigest()) != MNIST_HASHES[name]:
        raise ValueError(f"{path}: not MNIST's: the SHA-256 of its content must be {MNIST_HASHES[name]}, got {found}")
    return array


def _mnist_downloads(hashes: Sequence[tuple[str, str]]) -> tuple[Download, ...]:
    servers = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")
    return tuple(Download(name, tuple(f"{s}/{name}" for s in servers), f"md5:{md5}") for name, md5 in hashes)


def _cifar(version: str, suffix: str, md5: str) -> Source:
    folder, archive = f"cifar-10-batches-{suffix}", f"cifar-10-{version}.tar.gz"
    ending = ".bin" if suffix == "bin" else ""
    files = tuple(f"{name}{ending}" for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"))
    urls = tuple(f"https://{server}/{archive}" for server in ("www.cs.toronto.edu/~kriz", "cave.cs.toronto.edu/kriz"))
    members = tuple(f"{folder}/{file}" for file in files)
    return Source((folder,), files, (Download(archive, urls, f"md5:{md5}", members),), may_be_gzipped=True)


MNIST_HASHES = {  # of the uncompressed content, because servers compress the same files differently
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
MNIST = Source(
    ("mnist", "MNIST/raw"),
    tuple(MNIST_HASHES),
    _mnist_downloads(
        [
            ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
            ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
        ]
    ),
    may_be_gzipped=True,
)
CIFAR_BINARY = _cifar("binary", "bin", "c32a1d4ab5d03f1284b67883e8d87530")
CIFAR_PYTHON = _cifar("python", "py", "c58f30108f718f92721af3b95e74349a")
