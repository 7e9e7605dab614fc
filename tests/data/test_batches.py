import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trellisnet.data import ItemBatches, Items, TextBatches


class Ragged(Items):
    """Sequence i has the value i + 1 at each step, and the target i."""

    def __init__(self, count):
        self.lengths = 1 + np.arange(count) * 7 % 5

    def __len__(self):
        return len(self.lengths)

    def take(self, indices, steps=None):
        inputs = np.zeros((len(indices), steps, 1), dtype=np.float32)
        for row, index in enumerate(indices):
            inputs[row, : self.lengths[index]] = index + 1
        return inputs, indices


def text_batches(**options):
    return TextBatches(np.arange(1003, dtype=np.uint16), batch_size=8, steps=16, **options)


def item_batches(**options):
    return ItemBatches(Ragged(50), batch_size=8, shuffle=True, seed=3, **options)


def random_batches(**options):
    return text_batches(seed=3, **options)


MAKERS = [
    text_batches,
    lambda **o: text_batches(context=5, **o),
    random_batches,
    lambda **o: random_batches(context=5, **o),
    item_batches,
]


def flat(batch):
    lengths = [] if batch.lengths is None else batch.lengths.tolist()
    return batch.inputs.tolist(), batch.targets.tolist(), lengths, batch.continues


def joined(batches):
    """The rows of several processes as one batch."""
    lengths = [] if batches[0].lengths is None else torch.cat([batch.lengths for batch in batches]).tolist()
    inputs, targets = (torch.cat([getattr(batch, name) for batch in batches]) for name in ("inputs", "targets"))
    return inputs.tolist(), targets.tolist(), lengths, batches[0].continues


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("world_size", [2, 4])
def test_the_shards_of_all_processes_are_the_batches_of_one(make, world_size):
    one, many = make(), [make(rank=rank, world_size=world_size) for rank in range(world_size)]
    for _ in range(3):
        expected = [flat(batch) for batch in one]
        shards = [list(shard) for shard in many]
        rows = [[shard[i] for shard in shards if i < len(shard)] for i in range(len(expected))]
        assert [joined(row) for row in rows] == expected


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("stop", [0, 1, 5, 7, 9])
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_restored_position_continues_exactly(make, stop, world_size):
    """Also with another number of processes, and through JSON."""
    whole = make()
    expected = [flat(batch) for _ in range(3) for batch in whole]
    first = make(rank=0, world_size=world_size)
    seen = 0
    while seen < stop:
        for _ in first:
            seen += 1
            if seen == stop:
                break
    state = json.loads(json.dumps(first.state_dict()))
    second = make()
    second.load_state_dict(state)
    rest = []
    while second.epoch < 3:
        rest += [flat(batch) for batch in second]
    assert rest == expected[stop:]


def test_a_position_after_the_last_batch_is_still_in_that_epoch():
    batches = item_batches()
    for _ in batches:
        state = batches.state_dict()
    assert (state["epoch"], state["position"]) == (0, len(batches))
    assert batches.epoch == 1
    batches.load_state_dict(state)
    assert list(batches) == []
    assert (batches.epoch, batches.position) == (1, 0)


@given(
    tokens=st.integers(2, 300),
    batch_size=st.integers(1, 6),
    steps=st.integers(1, 9),
    context=st.integers(0, 4),
    seed=st.sampled_from([None, 0, 1]),
)
def test_every_token_is_a_target_once(tokens, batch_size, steps, context, seed):
    column = (tokens - 1) // batch_size
    if column <= context:
        with pytest.raises(ValueError, match="ids must have more than"):
            TextBatches(np.arange(tokens), batch_size, steps, context=context)
        return
    batches = TextBatches(np.arange(tokens), batch_size, steps, context=context, seed=seed)
    expected = len(batches)
    found = list(batches)
    assert len(found) == expected
    counted = torch.cat([batch.targets[:, context:] for batch in found], dim=1)
    expected = torch.arange(batch_size * column).view(batch_size, column)[:, context:] + 1
    assert counted.equal(expected)
    assert all(batch.targets.equal(batch.inputs + 1) for batch in found)
    assert [batch.continues for batch in found] == [i > 0 and context == 0 for i in range(len(found))]


def lengths_of(batches, epochs):
    return [[batch.inputs.shape[1] for batch in batches] for _ in range(epochs)]


def test_random_windows_have_the_lengths_of_awd_lstm():
    """Of 20,000 windows 19 in 20 have the mean 70 and the others 35, with a deviation of 5; int() rounds down."""
    batches = TextBatches(np.zeros(1_300_000, dtype=np.uint8), batch_size=1, steps=70, seed=1)
    lengths = np.concatenate([lengths[:-1] for lengths in lengths_of(batches, 1)])
    long = lengths[lengths > 52]
    assert len(long) / len(lengths) == pytest.approx(0.95, abs=0.01)
    assert long.mean() == pytest.approx(69.5, abs=0.2)
    assert long.std() == pytest.approx(5, abs=0.15)
    assert lengths[lengths <= 52].mean() == pytest.approx(34.5, abs=0.6)
    short = TextBatches(np.zeros(9000, dtype=np.uint8), batch_size=1, steps=10, seed=1)
    assert min(lengths_of(short, 1)[0][:-1]) == 5


def test_random_windows_are_drawn_once_per_epoch(monkeypatch):
    draw, epochs = TextBatches._draw_ends, []
    monkeypatch.setattr(TextBatches, "_draw_ends", lambda self, epoch: epochs.append(epoch) or draw(self, epoch))
    lengths_of(random_batches(), 2)
    assert epochs == [0, 1]


def test_random_windows_follow_from_the_seed_and_the_epoch():
    lengths = lengths_of(random_batches(), 3)
    assert lengths == lengths_of(random_batches(), 3)
    assert lengths[0] != lengths[1] != lengths[2]
    assert lengths != lengths_of(text_batches(seed=4), 3)
    assert [random_batches().count(epoch) for epoch in range(3)] == list(map(len, lengths))
    assert random_batches().total(3) == sum(map(len, lengths))
    of_a_thousand = random_batches().total(1000)
    assert random_batches().total(10**9) == of_a_thousand * 10**6  # at once
    with pytest.raises(ValueError, match="the state must be of batches with seed = 3, got None"):
        random_batches().load_state_dict(text_batches().state_dict())


def test_text_batches_have_the_shape_that_models_read():
    batch = next(iter(text_batches()))
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    assert batch.inputs.shape == batch.targets.shape == (8, 16)


def test_padding_reaches_the_longest_sequence_of_all_processes():
    shards = [next(iter(item_batches(rank=rank, world_size=4))) for rank in range(4)]
    assert len({shard.inputs.shape for shard in shards}) == 1
    for shard in shards:
        for row, length, index in zip(shard.inputs, shard.lengths, shard.targets, strict=True):
            assert (row[:length] == index + 1).all()
            assert not row[length:].any()


def test_every_epoch_has_all_items_in_a_new_order():
    batches = item_batches()
    epochs = [torch.cat([batch.targets for batch in batches]).tolist() for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(50))
    other = ItemBatches(Ragged(50), batch_size=8, shuffle=True, seed=4)
    assert torch.cat([batch.targets for batch in other]).tolist() not in epochs
    assert torch.cat([batch.targets for batch in ItemBatches(Ragged(50), 8)]).tolist() == list(range(50))


def test_the_last_batch_is_divided_or_dropped():
    assert [len(batch.targets) for batch in item_batches()] == [8] * 6 + [2]
    assert [len(batch.targets) for batch in item_batches(drop_last=True)] == [8] * 6
    assert [sum(1 for _ in item_batches(rank=rank, world_size=4)) for rank in range(4)] == [7, 7, 6, 6]


def test_the_lengths_of_a_batch_stay_on_the_cpu():
    batch = next(iter(item_batches())).to("meta")
    assert batch.inputs.device.type == batch.targets.device.type == "meta"
    assert batch.lengths.device.type == "cpu"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 2, "world_size": 2}, "rank must be below world_size = 2, got 2"),
        ({"world_size": 3}, "batch_size must be a multiple of world_size = 3, got 8"),
        ({"world_size": 0}, "world_size must be an integer >= 1, got 0"),
    ],
)
def test_errors_name_bad_arguments(options, message):
    for make in MAKERS:
        with pytest.raises(ValueError, match=message):
            make(**options)


def test_a_state_of_other_batches_is_refused():
    state = item_batches().state_dict()
    with pytest.raises(ValueError, match="the state must be of batches with seed = 4, got 3"):
        ItemBatches(Ragged(50), 8, shuffle=True, seed=4).load_state_dict(state)
    with pytest.raises(ValueError, match="the state must be of batches with tokens = 1003, got None"):
        text_batches().load_state_dict(state)
    with pytest.raises(ValueError, match="position must be at most 7, the batches of an epoch, got 8"):
        item_batches().load_state_dict({**state, "position": 8})
