import numpy as np
import pytest

from trellisnet.data.batches import ItemBatches, Items
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


def by_pixel(variation, image, draws):
    """One channel (height, width), from the definition: where each pixel is read, and the mean of four."""
    height, width = image.shape
    turn, zoom, across, down, side = 2 * draws - 1
    angle, scale = np.radians(variation.rotate) * turn, 1 + variation.zoom * zoom
    out = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            x, y = column - (width - 1) / 2, row - (height - 1) / 2
            x = -x if variation.mirror and side < 0 else x
            column_read = scale * (np.cos(angle) * x - np.sin(angle) * y) + variation.shift * across + (width - 1) / 2
            row_read = scale * (np.sin(angle) * x + np.cos(angle) * y) + variation.shift * down + (height - 1) / 2
            column_read, row_read = np.clip(column_read, 0, width - 1), np.clip(row_read, 0, height - 1)
            left, top = int(column_read), int(row_read)
            right, bottom = min(left + 1, width - 1), min(top + 1, height - 1)
            a, b = column_read - left, row_read - top
            upper = (1 - a) * image[top, left] + a * image[top, right]
            lower = (1 - a) * image[bottom, left] + a * image[bottom, right]
            out[row, column] = (1 - b) * upper + b * lower
    return out


@pytest.mark.parametrize(("height", "width"), [(5, 9), (7, 4), (6, 6), (1, 3)])
@pytest.mark.parametrize("variation", [ALL, Variation(3, 180, 0.5), Variation(mirror=True)])
def test_images_are_read_where_the_definition_says(variation, height, width):
    x, numbers = images(height=height, width=width), RNG.random((2, 5))
    expected = [[by_pixel(variation, plane, draw) for plane in image] for image, draw in zip(x, numbers, strict=True)]
    np.testing.assert_allclose(variation.apply(x, numbers), expected, atol=1e-5)


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


class Draws(Items):
    """Sequences whose varied inputs are the numbers that they were drawn."""

    draws = 5

    def __len__(self):
        return 10

    def take(self, indices, steps=None):
        return np.zeros((len(indices), 5)), indices

    def vary(self, inputs, draws):
        return draws


def drawn(epoch=0, position=0, **options):
    """The numbers of a batch of four."""
    batches = ItemBatches(Draws(), 4, shuffle=True, **options)
    batches.load_state_dict({**batches.state_dict(), "epoch": epoch, "position": position})
    return next(iter(batches)).inputs.numpy()


def test_draws_follow_from_the_seed_the_epoch_and_the_batch():
    numbers = [drawn(), drawn(epoch=1), drawn(position=1), drawn(seed=1), np.random.default_rng([0, 0]).random((4, 5))]
    assert len({each.tobytes() for each in numbers}) == len(numbers)
    np.testing.assert_array_equal(drawn(epoch=1, position=1), drawn(epoch=1, position=1))
    assert ((numbers[0] >= 0) & (numbers[0] <= 1)).all()


def test_processes_share_the_draws_of_one():
    both = [drawn(position=2, rank=rank, world_size=2) for rank in (0, 1)]  # the last batch, of two
    np.testing.assert_array_equal(np.concatenate(both), drawn(position=2))


def test_what_is_not_shuffled_is_not_varied():
    (first, *_) = ItemBatches(Draws(), 4)
    assert (first.inputs == 0).all()


def test_the_fingerprint_covers_the_variation():
    items = pixels()
    known = [VariedPixels(items, each).fingerprint() for each in (ALL, Variation(shift=1), Variation(shift=2))]
    assert len({items.fingerprint(), *known}) == 4
    assert VariedPixels(items, Variation(shift=np.float32(2))).fingerprint() == known[-1]
