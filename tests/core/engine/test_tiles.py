"""How the steps of a layer are cut into tiles."""

import pytest
import torch

from trellisnet import TrellisNet
from trellisnet.core.batch import read_sequences
from trellisnet.core.engine.tiles import Tiling, cut
from trellisnet.core.forms import Form


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 12])
def test_every_step_belongs_to_one_tile(rows, most, paired):
    steps, found = list(range(rows)), []
    for slices in cut(rows, most, paired):
        parts = [steps[each] for each in slices]
        assert 1 <= sum(map(len, parts)) <= most
        assert len(parts) == (2 if paired and sum(map(len, parts)) > 1 else 1)
        found += [step for part in parts for step in part]
    assert sorted(found) == steps


def test_a_pair_of_parts_is_every_second_step_and_those_between():
    ((first, second),) = cut(5, 5, paired=True)
    assert list(range(5))[first] == [0, 2, 4]
    assert list(range(5))[second] == [1, 3]


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("call", [{}, {"tail": 3}, {"lengths": [9, 4], "tail": 2}], ids=str)
def test_rows_of_tiles_are_those_of_the_plan(monkeypatch, call, paired):
    monkeypatch.setattr("trellisnet.core.engine.tiles.TILE", 1)
    monkeypatch.setattr("trellisnet.core.engine.tiles.TILE_ROWS", 5)
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED", 1 if paired else 10**6)
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED_WIDTH", 1)
    net = TrellisNet(3, 5, 4, dilation=(1, 2, 1))
    sequences = read_sequences(torch.randn(9, 2, 3), call.get("lengths"), False, 3)
    call = net._calls.planned(net, sequences, None, call.get("tail"), Form("layers", 4, None, False))
    plan = call.plan
    for i, tiles in enumerate(call.derive(Tiling).layers):
        above = torch.tensor([*plan.levels[i + 1].context, *plan.levels[i + 1].steps])
        below, gates, new = torch.tensor([*plan.levels[i].context, *plan.levels[i].steps]), [], []
        for tile in tiles:
            new += above[tile.new].tolist()
            for part in tile.parts:
                gates += torch.arange(plan.layers[i].rows)[tile.gates][part.gates].tolist()
                older, newest = (below[rows] for rows in part.taps)
                assert torch.equal(newest, above[part.new])
                assert torch.equal(newest - older, torch.full_like(newest, plan.layers[i].dilation))
            if len(tile.parts) == 2:
                assert torch.equal(below[tile.reads][1:], above[tile.new])
        assert gates == list(range(plan.layers[i].rows))
        assert new == list(plan.levels[i + 1].steps)
