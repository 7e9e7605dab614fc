import numpy as np
import pytest

from trellisnet.data import load


@pytest.mark.parametrize("steps", [1, 10, 10_000])
def test_copy_memory(steps):
    data = load("copy-memory", steps=steps)
    inputs, targets = data.splits["train"].take(np.arange(20))
    assert inputs.shape == targets.shape == (20, steps + 20)
    assert ((inputs[:, :10] >= 1) & (inputs[:, :10] <= 8)).all()
    assert set(np.unique(inputs[:, :10])) == set(range(1, 9))
    assert (inputs[:, 9 + steps] == 9).all()
    assert not inputs[:, 10 : 9 + steps].any()
    assert not inputs[:, 10 + steps :].any()
    assert not targets[:, :-10].any()
    assert (targets[:, -10:] == inputs[:, :10]).all()
    assert (data.task, data.input_size, data.output_size) == ("tokens", 10, 10)


@pytest.mark.parametrize("steps", [2, 3, 10_000])
def test_adding(steps):
    data = load("adding", steps=steps)
    inputs, targets = data.splits["test"].take(np.arange(200))
    assert inputs.shape == (200, steps, 2)
    marks = inputs[..., 1].astype(bool)
    assert (marks[:, : steps // 2].sum(1) == 1).all()
    assert (marks[:, steps // 2 :].sum(1) == 1).all()
    np.testing.assert_allclose(targets[:, 0], inputs[marks][:, 0].reshape(200, 2).sum(1), rtol=1e-6)
    assert abs(((targets - 1) ** 2).mean() - 1 / 6) < 0.05


@pytest.mark.parametrize("name", ["copy-memory", "adding"])
def test_sequences_depend_on_seed_split_and_index_only(name):
    def take(seed=0, split="train", indices=(3, 7)):
        return load(name, steps=30, seed=seed).splits[split].take(np.array(indices))[0]

    np.testing.assert_array_equal(take(), take())
    np.testing.assert_array_equal(take(indices=(7,))[0], take()[1])
    for other in (take(seed=1), take(split="valid"), take(split="test"), take(indices=(4, 8))):
        assert (other != take()).any(axis=tuple(range(1, other.ndim))).all()


def test_errors_name_bad_arguments():
    with pytest.raises(ValueError, match="steps must be an integer >= 2, got 1"):
        load("adding", steps=1)
    with pytest.raises(ValueError, match="steps must be an integer >= 1, got 0"):
        load("copy-memory", steps=0)
    with pytest.raises(ValueError, match="train_items must be an integer >= 1, got 0"):
        load("copy-memory", train_items=0)
    with pytest.raises(ValueError, match="seed must be an integer >= 0, got -1"):
        load("adding", seed=-1)
