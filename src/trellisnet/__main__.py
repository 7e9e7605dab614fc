"""`python -m trellisnet`, which torchrun uses."""

from trellisnet.cli import script

script()
