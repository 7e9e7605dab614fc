"""`trellisnet` on tiny experiments, as a program of its own that torchrun can start."""

import sys

import pytest

from tiny import shrunk, tiny_data
from trellisnet.cli import main
from trellisnet.training import fit, tasks

OWN_FILES = ("text", "series")


def make_tiny(patch: pytest.MonkeyPatch) -> None:
    """Whatever is trained from now on is narrow, on little data, and for one epoch."""
    load, train_new = tasks.load, fit.train_new

    def load_little(name, **options):
        return load(name, **options) if name in OWN_FILES else tiny_data(name)

    def train_little(config, *args):
        config.training.epochs = 1
        return train_new(shrunk(config), *args)

    patch.setattr(tasks, "load", load_little)
    patch.setattr(fit, "train_new", train_little)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        make_tiny(patch)
        code = main(sys.argv[1:])
    sys.exit(code)
