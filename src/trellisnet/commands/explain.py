"""`trellisnet explain`."""

from __future__ import annotations

from trellisnet.commands.printing import print_table
from trellisnet.training.config import Config


def explain(recipe: str, *, depth: int | None = None, config: Config | None = None) -> None:
    """Say what the net of a recipe or a run costs before it is trained: receptive field, cells, multiply-adds, memory.

    Examples: `trellisnet explain adding`, `trellisnet explain seq-mnist --model.num_layers 14`,
    `trellisnet explain runs/demo-1`. An LSTM and a TCN with as many parameters stand beside the trellis. The recipe's
    data is loaded for its sizes; nothing is trained. Multiply-adds and memory are those of a training step from the
    start of a sequence.

    Args:
        recipe: name of a recipe (see `trellisnet recipes`), path of a YAML file, or folder of a run.
        depth: number of layers; default that of the recipe.
        config: the recipe with the flags that change it.
    """
    from trellisnet.core.trellis import TrellisNet  # noqa: PLC0415
    from trellisnet.training.checks import check_config  # noqa: PLC0415
    from trellisnet.training.distribution import workers  # noqa: PLC0415
    from trellisnet.training.tasks import make_task  # noqa: PLC0415

    assert config is not None
    if config.model.body != "trellis":
        raise ValueError(f"explain needs a recipe with the body 'trellis', got {config.model.body!r}")
    with workers("cpu") as team:
        check_config(config, team.count)
        task = make_task(config)
        batch = next(iter(task.train_batches(team)))
    net = task.model.net
    assert isinstance(net, TrellisNet)
    sequences, steps = batch.inputs.shape[0] // task.training.accumulate, batch.inputs.shape[1]
    explained = net.explain(steps, sequences, tail=task.model.wanted_steps(steps), depth=depth)
    print(explained.question)
    head = ["", *(figures.name for figures in explained.nets)]
    print_table(head, explained.rows(), head[:1])
    print(f"the whole model has {task.num_parameters:,} parameters")
    if explained.scratch is not None:
        print(f"beside what it keeps, the trellis needs {explained.scratch:,} bytes of working memory")
