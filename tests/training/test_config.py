from dataclasses import dataclass, fields

import pytest

from trellisnet.cli import parse
from trellisnet.commands.train import train
from trellisnet.core.options import TrellisOptions
from trellisnet.models import bodies
from trellisnet.models.options import LanguageOptions, SequenceOptions
from trellisnet.training import config
from trellisnet.training.config import documented, model_config


def names(kind):
    return {option.name for option in fields(kind)}


@pytest.mark.parametrize("kind", ["text", "tokens", "sequences"])
def test_a_model_has_the_declared_options_and_no_others(kind):
    around = {*names(SequenceOptions)} if kind == "sequences" else {"embedding_size", *names(LanguageOptions)}
    made = model_config("trellis", kind)
    assert names(made) == {"body", "parameters"} | around | names(TrellisOptions) - {"staggered"}
    assert all(documented(made)[name] for name in names(made))


def test_unset_options_have_the_declared_defaults():
    made = model_config("trellis", "text")(hidden_size=8, num_layers=2, cell="gru")
    assert (made.body, made.kernel_size, made.memory, made.head) == ("trellis", 2, "store", "softmax")
    assert made.chosen() == {"hidden_size": 8, "num_layers": 2, "cell": "gru"}
    assert made == made.changed() != made.changed(kernel_size=3)


@dataclass
class NewOptions:
    """A body that somebody adds.

    Args:
        hidden_size: width.
        speed: how fast it is.
    """

    hidden_size: int
    speed: float = 1.0


def test_an_option_is_declared_in_one_place(monkeypatch, capsys):
    """Recipes, flags and help know an option from its declaration alone."""
    monkeypatch.setattr(bodies, "NewOptions", NewOptions, raising=False)
    monkeypatch.setitem(bodies.BODIES, "new", ("trellisnet.models.bodies", "NewBody", "NewOptions"))
    config.model_config.cache_clear()
    try:
        made = parse("train", train, ["demo", "--model.body", "new", "--model.speed", "3"])["config"].model
        assert (made.body, made.hidden_size, made.speed) == ("new", 384, 3.0)
        with pytest.raises(SystemExit):
            parse("train", train, ["demo", "--model.body", "new", "--help"])
        assert "how fast it is. (type: float, default: 1.0)" in " ".join(capsys.readouterr().out.split())
    finally:
        config.model_config.cache_clear()
