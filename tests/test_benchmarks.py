"""The benchmarks compare like with like."""

from functools import partial
from itertools import accumulate
from types import SimpleNamespace

import pytest
import torch

import depth_study
from attention_study import Task, study
from field import CONTESTS, vowels
from measure import executed_products, interleaved, products, share_of_peak, training_step
from peers import PIXELS, PlainTrellis, Shape
from reference import assert_close, gradients
from soak import soak
from tokenise import CONTESTANTS, write_corpus
from trellisnet import TrellisLM, TrellisNet
from trellisnet.commands.versus import read_entries
from trellisnet.models.build import build_classifier, build_labeller, build_language_model, build_regressor
from trellisnet.models.sizing import width_for

SMALL = Shape("small", 3, 5, 6, 11, 2, tail=4, dilation=(1, 2))


def test_plain_peer_is_the_same_network():
    net = TrellisNet(3, 5, 6, dilation=(1, 2))
    plain = PlainTrellis(SMALL)
    for name in ("weight_input", "weight_hidden"):
        getattr(plain, name).data = getattr(net.kernel, name).data.permute(2, 1, 0).clone()
    plain.bias.data = net.kernel.bias.data.clone()
    x = torch.randn(11, 2, 3, requires_grad=True)
    y, expected = net(x)[0], plain(x.permute(1, 2, 0)).permute(2, 0, 1)
    assert_close(y, expected)
    assert_close(gradients(y, x), gradients(expected, x))


@pytest.mark.parametrize("name", ["plain", "store", "recompute", "lstm", "tcn"])
def test_every_contestant_takes_a_training_step(name):
    training_step(name, SMALL)()


def test_turns_are_taken_by_all():
    calls = []
    times = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=1)
    assert set(times) == {"a", "b"}
    assert all(0 < each < 1 for each in times.values())
    assert (calls[0], calls[-1]) == ("a", "b")


def test_products_of_the_pixel_shape():
    rows = 64 * 787  # of the layers that have something below them
    assert products(PIXELS) == pytest.approx(12 * rows * 130 * 520, rel=0.02)


def test_executed_products_are_fewer_in_pairs(monkeypatch):
    shape = Shape("small", 20, 5, 6, 12, 2)
    direct = executed_products(training_step("store", shape))
    assert direct == products(shape)
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED", 1)
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED_WIDTH", 1)
    hidden = 12 * (5 * 12 * 2) * 5 * 20  # of the five layers that have something below them
    assert direct - executed_products(training_step("store", shape)) == hidden / 4


def test_the_share_of_the_peak_is_the_median_of_pairs(monkeypatch):
    monkeypatch.setattr("measure.PEAK_PRODUCTS", 1)
    # each round: ten seconds for the large product, three for an untimed step, and one that counts; the last is slow
    clock = accumulate(wait for counted in (5, 4, 90) for wait in (0, 10, 3, counted))
    monkeypatch.setattr("measure.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert share_of_peak(lambda: None, SMALL, rounds=3) == pytest.approx(products(SMALL) / 5 / (2 * 2048**3 / 10))


@pytest.mark.parametrize("path", ["layers", "sweeps"])
def test_a_stream_does_not_drift(path):
    found = soak(path, steps=200, chunk=20)
    assert len(found.differences) == len(found.memory) == 10
    assert max(found.differences) < 1e-12


def test_tokenisers_agree(tmp_path, monkeypatch):
    monkeypatch.setenv("TRELLISNET_CACHE", str(tmp_path))
    write_corpus(tmp_path / "corpus.txt", size=300_000, vocabulary=2_000)
    counted = {name: count(tmp_path / "corpus.txt") for name, count in CONTESTANTS.items()}
    assert counted["plain"] == counted["trellisnet"]
    assert counted["plain"][1] == 2_001


SIZES = {  # of the models of each dataset
    "music": (build_labeller, 88, 88),
    "adding": (build_regressor, 2, 1),
    "copy-memory": (partial(build_language_model, embedding_size=10), 10),
    "ptb-char": (build_language_model, 50),
    "ptb-word": (build_language_model, 10_000),
    "perm-mnist": (build_classifier, 1, 10),
    "seq-mnist": (build_classifier, 1, 10),
    "ts": (build_classifier, 12, 9),
}


@pytest.mark.parametrize("name", [*CONTESTS, "japanese-vowels"])
def test_every_contest_of_the_field_can_be_held(name, tmp_path, capsys):
    contest = CONTESTS[name] if name in CONTESTS else vowels(tmp_path)
    entries = read_entries(contest.recipe, ",".join(contest.bodies), contest.flags)
    bodies = {entry.config.model.body for entry in entries}
    others = {"gru", "tcn", "qrnn", "transformer", "lru", "min-gru"} if contest.seeds == 1 else set()
    assert {"trellis", "lstm", *others} <= bodies
    assert {"layers", "sweeps"} <= {getattr(entry.config.model, "path", None) for entry in entries}
    build, *sizes = SIZES[entries[0].config.data.name]
    for entry in entries:
        model = entry.config.model
        width_for(
            lambda width, model=model: build(model.body, *sizes, **model.changed(hidden_size=width).chosen()),
            contest.parameters,
        )


def test_one_net_is_measured_at_every_depth(monkeypatch):
    for name, value in (("ROUNDS", 1), ("STREAMED", 2), ("COLUMNS", 2), ("WINDOW", 10), ("CHARACTERS", 4)):
        monkeypatch.setattr(depth_study, name, value)
    lm, ids = TrellisLM(7, 4, 6, 2, path="sweeps").eval(), torch.randint(7, (40,))
    times = depth_study.streamed(lm, [("sweeps", 1), ("layers", 30), ("steps", 2)])
    assert 0 < times[0] < times[1]
    deep = [depth_study.quality(lm, ids, path, 40) for path in depth_study.DEPTHS]
    assert deep == pytest.approx([deep[0]] * 3)  # all paths meet
    assert depth_study.quality(lm, ids, "layers", 1) != pytest.approx(deep[0], rel=1e-4)
    for path in depth_study.DEPTHS:
        found = depth_study.changes(lm, ids, path)
        assert len(found) == depth_study.SHOWN
        assert found[-1] < 0.1 * found[0]
    rows = depth_study.iterations(lm, ids)
    assert [len(row["iterations"]) for row in rows] == [4] * len(depth_study.TOLERANCES)
    assert sum(rows[0]["iterations"]) <= sum(rows[-1]["iterations"])


def test_the_attention_study_continues_from_the_trellis_it_trained():
    first, last = [], []

    def build(body, **options):
        return build_classifier(body, 2, 3, **options)

    def step(model, number, state):
        if number == 0:
            first.append(model.readout.weight.detach().clone())
        return model(torch.randn(4, 6, 2), torch.randint(3, (4,))).loss, None

    def score(model):
        last.append(model.readout.weight.detach().clone())
        return "accuracy", 0.5

    task = Task(1563, 1e-3, 1.0, {}, build, step, score)
    found = study("tiny", task, 0.01, ["trellis", "grown"])
    assert [each["net"] for each in found] == ["trellis", "grown"]
    assert found[0]["parameters"] == 1563
    assert found[1]["parameters"] > 1563  # the attention
    assert torch.equal(first[1], last[0])
    assert not torch.equal(first[0], last[0])
    with pytest.raises(ValueError, match="grown continues from the net 'trellis'"):
        study("tiny", task, 0.01, ["grown"])
