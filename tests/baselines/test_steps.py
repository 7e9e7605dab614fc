"""What all recurrent baselines have in common."""

import pytest
import torch

from loops import assert_chunks_equal_the_whole, assert_padding_changes_nothing
from reference import assert_close
from trellisnet.baselines.steps import run_steps
from trellisnet.models.bodies import make_body

BODIES = {
    "melis-lstm": {},
    "ind-rnn": {"longest": 5},
    "dilated-gru": {},
    "nas": {},
    "enas": {},
    "darts": {},
    "hyper-lstm": {"hyper_size": 3},
    "fast-slow-lstm": {"slow_size": 3, "zoneout_hidden": 0.1, "zoneout_memory": 0.5},
    "rmc": {"slots": 2},
}


def make(name, **options):
    return make_body(name, 3, **{"hidden_size": 4, "num_layers": 3, "output_size": 5, **BODIES[name], **options}).eval()


@pytest.mark.parametrize("name", BODIES)
def test_chunks_equal_the_whole(name):
    assert_chunks_equal_the_whole(make(name))


@pytest.mark.parametrize("name", BODIES)
def test_padding_changes_nothing(name):
    assert_padding_changes_nothing(make(name))


@pytest.mark.parametrize("name", BODIES)
def test_an_output_depends_on_no_later_step(name):
    body, x = make(name), torch.randn(6, 1, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(body(x)[0][3].sum(), x)
    assert gradient[4:].eq(0).all()
    assert gradient[:4].ne(0).any(dim=-1).all()


@pytest.mark.parametrize("name", [name for name in BODIES if name != "fast-slow-lstm"])
def test_dropout_needs_two_layers(name):
    with pytest.raises(ValueError, match=r"dropout acts between layers: got dropout=0.5 with num_layers=1"):
        make(name, num_layers=1, dropout=0.5)


def test_the_loop_stops_each_sequence_at_its_end():
    inputs = torch.arange(8.0).view(4, 2, 1)

    def step(read, states):
        total = states[0] + read
        return -total, (total, states[1] + 1)

    outputs, (total, count) = run_steps(step, inputs, (torch.zeros(2, 1), torch.zeros(3, 2, 1)), torch.tensor([2, 4]))
    assert_close(total[:, 0], torch.tensor([0.0 + 2, 1 + 3 + 5 + 7]))
    assert_close(count[:, :, 0], torch.tensor([[2.0, 4]]).expand(3, 2))
    assert_close(outputs[:2, 0, 0], torch.tensor([0.0, -2]))
    assert_close(outputs[:, 1, 0], -torch.tensor([1.0, 4, 9, 16]))
