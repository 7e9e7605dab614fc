import numpy as np
import pytest

from trellisnet.data import from_arrays, load
from trellisnet.data.batches import Items
from trellisnet.data.fingerprints import changes, fact_fingerprints, fingerprint


def test_every_byte_counts():
    array = np.arange(5000, dtype=np.float32).reshape(50, 100)
    before = fingerprint(array)
    for place in (0, 777, 2501, 4999):
        changed = array.copy()
        changed.reshape(-1).view(np.uint8)[4 * place] ^= 1
        assert fingerprint(changed) != before
    assert fingerprint(array.copy()) == fingerprint(np.asfortranarray(array)) == before


def test_form_counts_too():
    values = (
        np.zeros(4, np.int8), np.zeros((2, 2), np.int8), np.zeros(1, np.int32), [0, 0], [[0], 0], [[0, 0]], 0, 0.0,
        False, "0", None, [], [None], [""], ["a", "b"], ["ab"],
    )  # fmt: skip
    assert len({fingerprint(value) for value in values}) == len(values)
    with pytest.raises(TypeError, match="a set has no bytes to hash"):
        fingerprint({1})
    with pytest.raises(TypeError, match="an array of object"):
        fingerprint(np.array([{}], dtype=object))


@pytest.mark.parametrize("ragged", [False, True])
def test_one_value_of_any_sequence_counts(ragged):
    x, y = np.random.default_rng(0).standard_normal((40, 7, 2)), np.arange(40) % 3

    def parts():
        rows = [row[: 2 + i % 5] for i, row in enumerate(x)] if ragged else x
        return {name: items.fingerprint() for name, items in from_arrays(rows, y).splits.items()}

    before = parts()
    assert parts() == before
    for i in range(40):
        x[i, 1, 1] += 1
        now = parts()
        assert len(changes(before, now)) == 1
        before = now
    y[11] = 0
    assert len(changes(before, parts())) == 1


@pytest.mark.parametrize("task", ["classification", "forecasting"])
def test_one_value_of_a_file_counts(task, tmp_path):
    values, label = np.random.default_rng(0).standard_normal((30, 40)), np.arange(30) % 2
    path = tmp_path / "own.npz"
    options = {"window": 5} if task == "forecasting" else {}

    def splits():
        np.savez(path, values=values, **({"label": label} if task == "classification" else {}))
        data = load("series", path=path, task=task, standardise=False, **options)
        return [items.fingerprint() for items in data.splits.values()]

    before = splits()
    for i in range(0, 30, 4):
        values[i, 17] += 1e-3
        now = splits()
        assert now != before
        before = now


def test_synthetic_sequences_are_hashed_by_their_seed():
    def made(**options):
        return load("adding", steps=5, train_items=10**7, **options).splits["train"].fingerprint()

    assert made() == made()
    assert made(seed=1) != made()


def test_items_with_other_attributes_hash_their_sequences():
    class Own(Items):
        def __init__(self, last):
            self.rows, self.source = np.array([[1.0], [2.0], [last]]), object()

        def __len__(self):
            return len(self.rows)

        def take(self, indices, steps=None):
            return self.rows[indices], indices

    assert Own(3.0).fingerprint() == Own(3.0).fingerprint() != Own(4.0).fingerprint()


def test_facts_are_compared_as_json_writes_them():
    assert fact_fingerprints({"labels": ("a", "b"), "name": "x"}) == fact_fingerprints({"labels": ["a", "b"]})
