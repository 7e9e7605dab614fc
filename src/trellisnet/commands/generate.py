"""`trellisnet generate`."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from trellisnet.commands.arguments import take_positional


def generate(
    run: str,
    prompt: str = "\n",
    tokens: int = 500,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    beams: int | None = None,
    stop: list[str] = [],  # noqa: B006
    seed: int | None = None,
    model: Literal["best", "last"] = "best",
) -> None:
    """Let a trained language model write; the text appears as it is made.

    Args:
        run: the folder of a run, or of a model that `save_pretrained` wrote.
        prompt: what it goes on from.
        tokens: how many to add.
        temperature: below 1 the probable becomes more so; 0: always the most probable; default 0.8.
        top_k: draw only from the k most probable.
        top_p: draw only from the fewest that together have this probability.
        repetition_penalty: above 1, what was there already becomes rarer.
        beams: search for the most probable text instead of drawing one, keeping so many.
        stop: tokens that end the text.
        seed: for the same text every time.
        model: the best by validation, or that of the last epoch.
    """
    drawing = _drawing(beams, {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed})

    import torch  # noqa: PLC0415

    from trellisnet.models.language import LanguageModel  # noqa: PLC0415

    torch.set_flush_denormal(True)
    folder = Path(run)
    lm = LanguageModel.from_pretrained(folder / model if (folder / model).is_dir() else folder)
    if beams is not None:
        print(lm.generate(prompt, tokens, beams=beams, repetition_penalty=repetition_penalty, stop=stop))
        return
    pieces = lm.stream_text(prompt, tokens, stop=stop, repetition_penalty=repetition_penalty, **drawing)
    first = next(pieces, "")  # finds what is wrong with the options, before anything is printed
    print(prompt, end="")
    for piece in chain([first], pieces):
        print(piece, end="")
        sys.stdout.flush()
    print()


def _drawing(beams: int | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options of drawing that `stream_text` takes; none, if nothing is drawn."""
    given = {name: value for name, value in options.items() if value is not None}
    if beams is None and given.get("temperature") != 0:
        return {"temperature": 0.8, **given}
    owner = "--temperature 0" if beams is None else f"--beams {beams}"
    for name, value in given.items():
        if beams is not None or name != "temperature":
            raise ValueError(f"--{name} {value} contradicts {owner}, with which nothing is drawn")
    return {}


def prepare(parser: Any, arguments: list[str]) -> list[str]:
    """The run comes first, without a flag."""
    return take_positional("run", arguments)
