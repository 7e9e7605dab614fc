import numpy as np
import pytest
import torch

from trellisnet import TrellisLM
from trellisnet.training.distribution import Workers
from trellisnet.training.streaming import stream_columns


@pytest.fixture
def text():
    return np.random.default_rng(0).integers(0, 9, 101).astype(np.uint16)


@pytest.mark.parametrize("options", [{}, {"kernel_size": 3, "dilation": [1, 2]}, {"groups": [4, 6], "head": "mos"}])
@pytest.mark.parametrize("columns", [1, 2, 3, 50])
@pytest.mark.parametrize("window", [1, 7, 200])
def test_the_sum_does_not_depend_on_the_columns(text, options, columns, window):
    lm = TrellisLM(9, 6, 10, num_layers=4, hidden_dropout=0.5, **options)
    (nll,), count = stream_columns(lm, text, columns, window, Workers())
    score = lm.score(torch.from_numpy(text.astype(np.int64)))
    assert count == len(text) - 1
    assert nll == pytest.approx(score.nll * count, abs=1e-10)
    assert lm.training


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_processes_share_the_columns(text, processes):
    lm = TrellisLM(9, 6, 10, num_layers=4)
    parts = [stream_columns(lm, text, 5, 10, Workers(rank, processes)) for rank in range(processes)]
    (nll,), count = stream_columns(lm, text, 5, 10, Workers())
    assert sum(part[1] for part in parts) == count
    assert sum(part[0][0] for part in parts) == pytest.approx(nll, abs=1e-10)


def test_any_depth_is_exact(text):
    lm = TrellisLM(9, 6, 10, num_layers=4).eval()
    ids = torch.from_numpy(text.astype(np.int64))[None]
    for depth in (1, 7):
        (nll,), _ = stream_columns(lm, text, 3, 10, Workers(), [depth])
        expected = lm.head.nll(lm.features(ids[:, :-1], depth=depth).output, ids[:, 1:].t()).sum().item()
        assert nll == pytest.approx(expected, abs=1e-10)


def test_a_text_of_two_tokens():
    lm = TrellisLM(9, 6, 10, num_layers=4)
    assert stream_columns(lm, np.array([1, 2], dtype=np.uint8), 4, 8, Workers())[1] == 1
