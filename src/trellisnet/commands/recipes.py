"""`trellisnet recipes`."""

from __future__ import annotations

from trellisnet.training.recipes import load_recipe, recipe_names

COLUMNS = ("recipe", "what", "metric", "paper", "paper's size", "hidden", "layers", "epochs")


def recipes() -> None:
    """List the recipes: their titles, the paper's results and sizes, and their own sizes."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(*COLUMNS, box=None, pad_edge=False)
    for name in recipe_names():
        recipe = load_recipe(name)
        about, model, training = (recipe.get(section, {}) for section in ("about", "model", "training"))
        result, size = about.get("paper_result"), about.get("paper_parameters")
        table.add_row(
            name,
            about.get("title", ""),
            about.get("metric", ""),
            "" if result is None else f"{result:g}",
            "" if size is None else f"{size:g}M",
            str(model.get("hidden_size", "")),
            str(model.get("num_layers", "")),
            str(training.get("epochs", "")),
        )
    console = Console()
    console.width = max(console.width, 120)  # so that no column is truncated
    console.print(table)
    console.print("Train one with `trellisnet train RECIPE`; hidden includes the output channels.", highlight=False)
