"""Right and wrong options of bodies and models, drawn from their declarations."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from fuzz.harness import Draw
from trellisnet.models.bodies import body_options

CHOICES = {
    "cell": ["tanh", "relu", "lstm", "coupled", "gru", "highway", "nas"],
    "memory": ["store", "recompute"],
    "init": ["uniform"],
    "path": ["layers", "sweeps", "steps"],
    "genotype": ["V1", "V2"],
    "convolved": ["first", "all"],
    "head": ["softmax", "mos", "moc", "adaptive", "cluster"],
    "history": ["carry", "repackage", "discard"],
    "distribution": ["normal", "student-t"],
}
KINDS = {"int": "size", "bool": "flag", "float": "probability", "str": "text"}
OF_NAMES = {
    "encoder": "body",
    "feed_forward": "count",  # min-gru can be without
    "hidden_taps": "count",
    "tolerance": "weight",
    "aux_weight": "weight",
    "alpha": "weight",
    "beta": "weight",
    "reconstruct_weight": "positive",
    "max_phase": "positive",
}


def kind_of(name: str, hint: str) -> str:
    """The kind of an option: a key of `harness.WRONG`."""
    if name in OF_NAMES:
        return OF_NAMES[name]
    if "Sequence[int]" in hint:
        return "sizes"
    return "levels" if "Sequence[float]" in hint else KINDS[hint.split(" |", maxsplit=1)[0]]


def declared(*declarations: Any) -> dict[str, str]:
    """The kind of every option of some dataclasses, by name."""
    return {each.name: kind_of(each.name, str(each.type)) for kind in declarations for each in fields(kind)}


def right(draw: Draw, name: str, kind: str, width: int) -> Any:
    """A value that an option of the kind can have, though not with every other option."""
    if name in ("groups", "staggered"):
        first = draw.randint(1, width)
        return [first, width - first] if first < width else [width]
    if name in CHOICES:
        return draw.choice(CHOICES[name])
    if name == "cutoffs":
        return sorted(draw.sample(range(1, 12), draw.randint(1, 2)))
    if name == "min_radius":
        return draw.choice([0.0, 0.4, 0.9])
    return {
        "size": lambda: draw.size(4),
        "body": lambda: {"name": draw.choice(["lstm", "gru", "qrnn"]), "hidden_size": draw.randint(1, 4)},
        "count": lambda: draw.randint(0, 3),
        "probability": lambda: draw.choice([0, 0.0, 0.25, 0.9]),
        "weight": lambda: draw.choice([0, 0.01, 1.0]),
        "positive": lambda: draw.choice([0.01, 1, 2.5]),
        "flag": lambda: draw.chance(0.5),
        "sizes": lambda: draw.choice([1, 2, [1, 2], (2, 1, 3), [4]]),
        "levels": lambda: draw.choice([[0.5], [0.1, 0.5, 0.9], (0.25, 0.75)]),
        "text": lambda: "nonsense",
    }[kind]()


def draw_options(draw: Draw, kinds: dict[str, str], given: dict[str, Any], share: float = 0.15) -> dict[str, Any]:
    """Some options with right values, beside those that are given."""
    width = given.get("hidden_size", 4)
    chosen = [name for name in kinds if name not in given and draw.chance(share)]
    return {**given, **{name: right(draw, name, kinds[name], width) for name in chosen}}


def spoil(draw: Draw, options: dict[str, Any], kinds: dict[str, str]) -> str | None:
    """Now and then make one option surely wrong, and return its name; or several of any value, and return None."""
    if draw.chance(0.45):
        return None
    if draw.chance(0.3):
        for _ in range(draw.randint(1, 3)):
            options[draw.choice(list(kinds))] = draw.anything()
        return None
    name = draw.choice(list(kinds))
    options[name] = draw.wrong(kinds[name])
    return name


def body_kinds(name: str) -> dict[str, str]:
    """The kinds of the options of a body, and of its input size."""
    return {"input_size": "size", **declared(body_options(name))}
