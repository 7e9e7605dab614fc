"""How the steps of a layer are cut into tiles."""

import pytest
import torch

from trellisnet.core.engine.tiles import Tile, cut


def test_a_tile_counts_from_the_first_row_of_its_layer():
    tile = Tile(1, 3, layer_rows=3, step=1, gates=slice(1, 3))
    assert tile.part(slice(3, 9)) == slice(4, 6, 1)
    assert tile.part(torch.tensor([5, 2, 8])).tolist() == [2, 8]
    assert tile.of(torch.arange(3)).tolist() == [1, 2]
    assert tile.of(torch.arange(5)).tolist() == [3, 4]
    assert tile.of_gates(torch.arange(3)).tolist() == [1, 2]
    assert tile.of_gates(torch.arange(1, 4), first=1).tolist() == [1, 2]


def test_a_tile_that_is_all_of_a_tensor_is_no_view():
    (whole,) = next(cut(3, 5, in_couples=False))
    tensor = torch.zeros(3, 2)
    assert whole.of(tensor) is tensor
    assert whole.of_gates(tensor) is tensor
    assert whole.of(torch.arange(5)).tolist() == [2, 3, 4]


@pytest.mark.parametrize("in_couples", [True, False])
@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 12])
def test_every_step_and_all_gates_belong_to_one_tile(rows, most, in_couples):
    steps, gates = torch.arange(rows), []
    found = []
    for tiles in cut(rows, most, in_couples):
        sizes = [len(tile.of(steps)) for tile in tiles]
        assert sum(sizes) <= most
        assert len(tiles) == (2 if in_couples and sum(sizes) > 1 else 1)
        for tile, size in zip(tiles, sizes, strict=True):
            found += tile.of(steps).tolist()
            gates += tile.of_gates(steps).tolist()
            assert len(tile.of_gates(steps)) == size
    assert sorted(found) == steps.tolist()
    assert gates == steps.tolist()  # they follow each other


def test_a_couple_is_every_second_step_and_those_between():
    first, second = next(cut(5, 5, in_couples=True))
    assert first.of(torch.arange(7)).tolist() == [2, 4, 6]
    assert second.of(torch.arange(7)).tolist() == [3, 5]
    assert first.of_gates(torch.arange(5)).tolist() == [0, 1, 2]
    assert second.of_gates(torch.arange(5)).tolist() == [3, 4]
    assert second.part(slice(10, 15)) == slice(11, 15, 2)
