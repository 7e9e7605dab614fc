"""`trellisnet generate`."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Any, Literal


def generate(
    run: str,
    *,
    prompt: str | None = None,
    prompts: str | None = None,
    tokens: int = 500,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    beams: int | None = None,
    stop: list[str] = [],  # noqa: B006
    seed: int | None = None,
    model: Literal["best", "last"] = "best",
    device: str = "auto",
) -> None:
    """Continue one or several prompts with a trained language model. A single text is printed while it is generated.

    Args:
        run: folder of a run, or of a model that `save_pretrained` wrote.
        prompt: text to continue; default a line break. `-` reads prompts from standard input, one per line.
        prompts: file with one prompt per line.
        tokens: number of tokens to add to each prompt.
        temperature: values below 1 favour probable tokens; 0 always takes the most probable one; default 0.8.
        top_k: sample only from the k most probable tokens.
        top_p: sample only from the smallest set of tokens with this total probability.
        repetition_penalty: values above 1 make tokens that are already in the text less probable.
        beams: search for the most probable text with n beams instead of sampling.
        stop: tokens that end the text.
        seed: random seed, for reproducible text.
        model: the best model by validation, or the one of the last epoch.
        device: auto, cpu, cuda, mps, ...; auto selects a GPU if there is one.
    """
    drawing = _drawing(beams, {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed})
    texts = _read_prompts(prompt, prompts)

    from trellisnet.models.language import LanguageModel  # noqa: PLC0415
    from trellisnet.process import prepare_process  # noqa: PLC0415
    from trellisnet.training.distribution import choose_device  # noqa: PLC0415

    prepare_process()
    folder = Path(run)
    place = choose_device(device, option="--device")
    lm = LanguageModel.from_pretrained(folder / model if (folder / model).is_dir() else folder, device=place)
    options: dict[str, Any] = {"stop": stop, "repetition_penalty": repetition_penalty, **drawing}
    if len(texts) > 1:
        for number, text in enumerate(lm.generate(texts, tokens, beams=beams, **options), start=1):
            print(f"=== {number} of {len(texts)} ===\n{text}")
    elif beams is not None:
        print(lm.generate(texts[0], tokens, beams=beams, **options))
    else:
        pieces = lm.stream_text(texts[0], tokens, **options)
        first = next(pieces, "")  # raises errors of the options before anything is printed
        print(texts[0], end="")
        for piece in chain([first], pieces):
            print(piece, end="", flush=True)
        print()


def _read_prompts(prompt: str | None, prompts: str | None) -> list[str]:
    if prompt is not None and prompts is not None:
        raise ValueError(f"--prompt and --prompts cannot be given together: got {prompt!r} and {prompts!r}")
    if prompts is not None:
        source, lines = prompts, Path(prompts).read_text(encoding="utf-8").splitlines()
    elif prompt == "-":
        source, lines = "standard input", sys.stdin.read().splitlines()
    else:
        return ["\n" if prompt is None else prompt]
    if not any(lines):
        raise ValueError(f"{source} must have at least one prompt, one per line, got none")
    return [line for line in lines if line]


def _drawing(beams: int | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options of sampling; empty for greedy search and beam search."""
    given = {name: value for name, value in options.items() if value is not None}
    if beams is None and given.get("temperature") != 0:
        return {"temperature": 0.8, **given}
    owner = "--temperature 0" if beams is None else f"--beams {beams}"
    for name, value in given.items():
        if beams is not None or name != "temperature":
            raise ValueError(f"--{name} {value} contradicts {owner}, which does not sample")
    return {}
