import pytest
import torch

from reference import assert_close
from trellisnet.training.config import TrainingConfig
from trellisnet.training.optimisation import Average, LearningRate, make_optimiser, stalled


def rates(total=100, **options):
    rate = LearningRate(TrainingConfig(learning_rate=1.0, **options), total)
    return [rate.at(step, 0) for step in range(total)]


def test_schedules_rise_and_fall():
    assert set(rates(schedule="constant")) == {1.0}
    linear = rates(schedule="linear")
    assert linear[0] == 1.0
    assert linear[50] == pytest.approx(0.5)
    cosine = rates(schedule="cosine")
    assert cosine == sorted(cosine, reverse=True)
    assert cosine[50] == pytest.approx(0.5)
    cycle = rates(schedule="cosine", warmup=0.2)
    assert cycle[:20] == sorted(cycle[:20])
    assert cycle[0] < 0.06
    assert max(cycle) == cycle[20] == 1.0
    assert cycle[20:] == sorted(cycle[20:], reverse=True)
    assert cycle[-1] < 0.01


def test_steps_decay_after_their_epochs():
    rate = LearningRate(TrainingConfig(learning_rate=1.0, schedule="steps", decay=10.0, decay_after=[2, 4]), 10)
    assert [rate.at(0, epoch) for epoch in range(6)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_plateaus_decay_as_in_the_authors_code():
    config = TrainingConfig(learning_rate=20.0, schedule="plateau", decay=4.0, patience=3)
    rate, scores = LearningRate(config, 10), []
    decays = []
    for value in [9, 8, 7, 7.5, 7.4, 7.2, 7.3, 6.9]:
        scores.append(value)
        decays.append(rate.after_evaluation(scores))
    # the sixth is not below the best of the first three, the seventh neither; the eighth is
    assert decays == [False, False, False, False, False, True, True, False]
    assert rate.at(0, 0) == pytest.approx(20 / 16)


@pytest.mark.parametrize(
    ("scores", "patience", "expected"),
    [([], 1, False), ([1.0], 1, False), ([1.0, 2.0], 1, True), ([2.0, 1.0], 1, False), ([1.0, 1.0], 1, True)],
)
def test_stalling(scores, patience, expected):
    assert stalled(scores, patience) is expected


def test_averages_are_means_and_give_back_the_parameters():
    parameter = torch.nn.Parameter(torch.tensor([1.0]))
    average = Average([parameter])
    with average.in_use():
        assert parameter.item() == 1.0
    for value in (1.0, 2.0, 6.0):
        torch.nn.init.constant_(parameter, value)
        average.update()
    with average.in_use():
        assert_close(parameter.detach(), torch.tensor([3.0]))
    assert parameter.item() == 6.0


@pytest.mark.parametrize(
    ("name", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_optimisers(name, kind):
    config = TrainingConfig(optimiser=name, learning_rate=0.5, weight_decay=0.1, momentum=0.9 if name == "sgd" else 0.0)
    optimiser = make_optimiser(config, [torch.nn.Parameter(torch.zeros(1))])
    assert type(optimiser) is kind
    (group,) = optimiser.param_groups
    assert group["lr"] == 0.5
    assert group["weight_decay"] == 0.1
    assert group.get("momentum", 0.9) == 0.9


@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_fused_optimisers_take_the_steps_of_the_plain_ones(name, kind):
    start = torch.randn(7, 3)
    fast, slow = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    fused = make_optimiser(TrainingConfig(optimiser=name, learning_rate=0.1, weight_decay=0.1), [fast])
    plain = kind([slow], 0.1, weight_decay=0.1, foreach=False, fused=False)
    for _ in range(5):
        fast.grad = torch.randn(7, 3)
        slow.grad = fast.grad.clone()
        fused.step()
        plain.step()
    assert_close(fast.detach(), slow.detach())
