import numpy as np
import pytest

from trellisnet.data.batches import ItemBatches
from trellisnet.data.sequences.images import PixelItems, VariedPixels
from trellisnet.data.sequences.variation import Variation

RNG = np.random.default_rng(0)
UNCHANGED = np.full((2, 5), 0.5)
ALL = Variation(shift=2, rotate=15, zoom=0.1, mirror=True)
ORDER = np.random.default_rng(1).permutation(36)


def draws(**changed):
    """Numbers for two images that change nothing, but for some of: turn, zoom, across, down, side."""
    numbers = UNCHANGED.copy()
    for name, number in changed.items():
        numbers[:, ["turn", "zoom", "across", "down", "side"].index(name)] = number
    return numbers


def images(channels=2, height=6, width=6):
    return RNG.random((2, channels, height, width), dtype=np.float32)


@pytest.mark.parametrize("variation", [Variation(), ALL])
def test_draws_in_the_middle_change_nothing(variation):
    x = images(height=5)
    np.testing.assert_allclose(variation.apply(x, UNCHANGED), x, atol=1e-6)  # float32, as all of this file


def test_images_are_moved_and_the_edge_comes_in():
    x = images(height=5, width=7)
    right = Variation(shift=2).apply(x, draws(across=1.0))  # read two pixels to the right
    np.testing.assert_allclose(right, np.concatenate([x[..., 2:], x[..., -1:], x[..., -1:]], axis=-1), atol=1e-5)
    up = Variation(shift=2).apply(x, draws(down=0.25))  # a quarter of the range: one pixel
    np.testing.assert_allclose(up, np.concatenate([x[:, :, :1], x[:, :, :-1]], axis=2), atol=1e-5)


def test_images_are_turned_by_the_whole_angle():
    x = images()
    np.testing.assert_allclose(Variation(rotate=90).apply(x, draws(turn=0.0)), np.rot90(x, -1, (2, 3)), atol=1e-5)
    flat = images(height=4, width=8)
    np.testing.assert_allclose(Variation(rotate=180).apply(flat, draws(turn=1.0)), flat[:, :, ::-1, ::-1], atol=1e-5)


def test_images_are_zoomed_around_their_middle():
    x = np.tile(np.arange(8, dtype=np.float32), (2, 1, 8, 1))  # the value is the column
    zoomed = Variation(zoom=0.5).apply(x, draws(zoom=0.0))
    np.testing.assert_allclose(zoomed[0, 0, 3], 3.5 + (np.arange(8) - 3.5) / 2, atol=1e-5)


def test_images_are_mirrored_below_a_half():
    x = images()
    sides = draws()
    sides[0, 4] = 0.4
    expected = np.stack([x[0, :, :, ::-1], x[1]])
    np.testing.assert_allclose(Variation(mirror=True).apply(x, sides), expected, atol=1e-5)
    np.testing.assert_allclose(Variation(rotate=1).apply(x, sides), x, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "value"), [("shift", -1), ("rotate", float("nan")), ("zoom", 1.0), ("shift", "2"), ("mirror", 1)]
)
def test_bad_amounts(name, value):
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        Variation(**{name: value})


def pixels(count=10, order=None):
    values = np.linspace(-1, 1, 256, dtype=np.float32)
    return PixelItems(RNG.integers(256, size=(count, 36, 3), dtype=np.uint8), np.arange(count), values, order)


def test_permuted_pixels_are_varied_as_images():
    plain = pixels(2)
    permuted = PixelItems(plain.pixels, plain.labels, plain.values, ORDER)
    numbers, both = RNG.random((2, 5)), np.arange(2)
    varied = [VariedPixels(items, ALL).vary(items.take(both)[0], numbers) for items in (plain, permuted)]
    np.testing.assert_array_equal(varied[1], varied[0][:, ORDER])
    rows = plain.take(both)[0].reshape(2, 6, 6, 3).transpose(0, 3, 1, 2)
    expected = ALL.apply(np.ascontiguousarray(rows), numbers).transpose(0, 2, 3, 1).reshape(2, 36, 3)
    np.testing.assert_array_equal(varied[0], expected)


def inputs(batches):
    return [batch.inputs.numpy() for batch in batches]


def test_every_epoch_has_other_variations_and_resuming_has_the_same():
    items = VariedPixels(pixels(order=ORDER), ALL)
    whole = ItemBatches(items, 4, shuffle=True)
    epochs = [inputs(whole), inputs(whole)]
    seen = [np.sort(np.concatenate(epoch), axis=0) for epoch in epochs]
    assert not np.allclose(*seen)
    resumed = ItemBatches(items, 4, shuffle=True)
    resumed.load_state_dict({**whole.state_dict(), "epoch": 1, "position": 1})
    for again, first in zip(inputs(resumed), epochs[1][1:], strict=True):
        np.testing.assert_array_equal(again, first)


def test_processes_share_the_variations_of_one():
    items = VariedPixels(pixels(), ALL)
    alone = inputs(ItemBatches(items, 4, shuffle=True))
    both = zip(*(inputs(ItemBatches(items, 4, shuffle=True, rank=rank, world_size=2)) for rank in (0, 1)), strict=True)
    for one, two in zip(alone, both, strict=True):
        np.testing.assert_allclose(np.concatenate(two), one, atol=1e-6)


def test_what_is_not_shuffled_is_not_varied():
    items = VariedPixels(pixels(), ALL)
    for batch, rows in zip(inputs(ItemBatches(items, 5)), (range(5), range(5, 10)), strict=True):
        np.testing.assert_array_equal(batch, items.take(np.array(rows))[0])


def test_the_fingerprint_covers_the_variation():
    items = pixels()
    prints = {VariedPixels(items, each).fingerprint() for each in (ALL, Variation(shift=1), Variation(shift=2))}
    assert len({items.fingerprint(), *prints}) == 4
