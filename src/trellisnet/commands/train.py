"""`trellisnet train`."""

from __future__ import annotations

from pathlib import Path

from trellisnet.training.config import Config


def train(
    recipe: str | None = None,
    *,
    resume: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    config: Config | None = None,
) -> int:
    """Train a recipe, or continue a run.

    Examples: `trellisnet train demo`, `trellisnet train word-ptb --model.hidden_size 700 --training.epochs 3`,
    `trellisnet train demo --model.body lstm`, `trellisnet train --resume runs/demo-1`,
    `trellisnet train --resume runs/demo-1 --training.epochs 20`, `trellisnet train demo --from runs/demo-1`,
    `torchrun --nproc_per_node 4 -m trellisnet train word-ptb`. `trellisnet train RECIPE --help` lists the options of
    the recipe's model, with the recipe's values.

    Args:
        recipe: name of a recipe (see `trellisnet recipes`), or path of a YAML file; not with --resume.
        resume: folder of a run, to continue exactly where it was interrupted; with --training.epochs N to extend it.
        from_: folder of another run, whose best weights the new run starts from; data, options and depth may differ.
        to: new folder for the run; default the first free `runs/RECIPE-N`.
        config: the recipe with the flags that change it.
    """
    from trellisnet.training.fit import resume as resume_run  # noqa: PLC0415
    from trellisnet.training.fit import train_new  # noqa: PLC0415
    from trellisnet.training.signals import Interrupted  # noqa: PLC0415

    try:
        if resume is not None:
            resume_run(Path(resume), None if config is None else config.training.epochs)
        else:
            assert recipe is not None
            assert config is not None
            start = None if from_ is None else Path(from_)
            train_new(config, Path(recipe).stem, None if to is None else Path(to), start)
    except Interrupted:
        return 130
    return 0
