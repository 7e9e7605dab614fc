import json
import shlex
from pathlib import Path

import pytest
import torch

from trellisnet.cli import main, parse
from trellisnet.commands.train import train
from trellisnet.models.bodies import BODIES
from trellisnet.models.build import build_classifier, build_labeller, build_language_model
from trellisnet.models.sizing import width_for
from trellisnet.training.checks import check_config
from trellisnet.training.recipes import load_recipe
from trellisnet.training.tables import as_markdown, load_tables, published

TABLES = load_tables()
ROWS = [(table, row) for table in TABLES for row in table.rows]
NAMED = [pytest.param(table, row, id=f"{table.data}-{row.system}") for table, row in ROWS]
WORDS = {"ptb-word": 10_000, "ptb-char": 50, "wikitext-103": 267_735}


def test_all_rows_of_the_paper_are_there():
    assert [(table.table, table.data, len(table.rows)) for table in TABLES] == [
        (1, "ptb-word", 14),
        (2, "wikitext-103", 7),
        (3, "ptb-char", 8),
        (4, "seq-mnist", 6),
        (4, "perm-mnist", 6),
        (4, "seq-cifar10", 6),
        (None, "music", 3),
        (None, "music", 3),
    ]


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_a_row_fits_its_recipe(table, row):
    recipe = load_recipe(row.recipe)
    assert recipe["data"]["name"] == table.data
    assert table.options.items() <= recipe["data"].get("options", {}).items()
    assert recipe["about"]["metric"] == table.metric
    assert row.overrides.get("model.body", "trellis") == row.body
    if row.body == "trellis":
        assert row.published == recipe["about"]["paper_result"]
        assert row.size == recipe["about"].get("paper_parameters")


@pytest.mark.parametrize(("table", "row"), NAMED)
def test_the_command_of_a_row_makes_a_model_of_its_size(table, row):
    assert row.body in BODIES
    config = parse("train", train, shlex.split(row.command)[2:])["config"]
    check_config(config)
    model = config.model

    def build(width):
        chosen = model.changed(hidden_size=width, parameters=None).chosen()
        if table.metric == "accuracy":
            return build_classifier(model.body, 1, 10, **chosen)
        if table.data == "music":
            return build_labeller(model.body, 88, 88, **chosen)
        return build_language_model(model.body, WORDS[table.data], **chosen)

    width = model.hidden_size if model.parameters is None else width_for(build, model.parameters)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in build(width).parameters())
    if row.size is not None:
        assert size / 1e6 == pytest.approx(row.size, rel=0.03)


@pytest.mark.parametrize(("table", "row"), [pair for pair in NAMED if pair.values[1].ours is not None])
def test_a_result_of_ours_has_its_command(table, row):
    assert row.ours.command.startswith("trellisnet train ")
    config = parse("train", train, shlex.split(row.ours.command)[2:])["config"]
    assert (config.data.name, config.model.body) == (table.data, row.body)
    sizes = {"seq-mnist": (1, 10), "perm-mnist": (1, 10), "seq-cifar10": (3, 10)}[table.data]
    model = build_classifier(row.body, *sizes, **config.model.chosen())
    assert model.num_parameters / 1e6 == pytest.approx(row.ours.parameters, abs=0.005)


def test_published_results_are_found_by_body():
    assert [row.published for row in published("perm-mnist", "tcn")] == [0.972]
    assert [row.system for row in published("wikitext-103", "lstm")] == ["LSTM", "LSTM with continuous cache"]
    assert published("seq-cifar10", "tcn") == []
    assert [row.published for row in published("music", "lstm", {"collection": "nottingham"})] == [3.29]
    assert [row.published for row in published("music", "lstm", {"collection": "jsb", "root": "/data"})] == [8.45]
    assert published("music", "lstm") == published("music", "lstm", {"collection": "muse"}) == []


def test_the_documentation_shows_the_tables():
    page = Path(__file__).parents[2] / "docs" / "field.md"
    assert as_markdown(TABLES) in page.read_text(), "see `trellisnet tables --format markdown`"


def test_the_tables_are_printed(capsys):
    assert main(["tables"]) == 0
    out = capsys.readouterr().out
    assert "Table 3: character-level Penn Treebank, bits" in out
    assert "99.20 %" in out
    assert main(["tables", "--format", "json", "--data", "ptb-char"]) == 0
    (table,) = json.loads(capsys.readouterr().out)
    assert table["rows"][-1]["published"] == 1.158
    assert main(["tables", "--data", "ptb-wrd"]) == 2
    assert "got 'ptb-wrd', did you mean 'ptb-word'?" in capsys.readouterr().err
