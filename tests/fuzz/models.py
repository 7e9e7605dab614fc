"""Fuzz of models: constructors, calls, predictions and generation."""

from __future__ import annotations

import math
from typing import Any

import torch

from fuzz.harness import Draw, Report, finite, judge
from fuzz.options import body_kinds, declared, draw_options, spoil
from trellisnet import (
    LanguageModel,
    SequenceClassifier,
    SequenceLabeller,
    SequenceRegressor,
    SequenceTagger,
    TrellisClassifier,
    TrellisLM,
    TrellisRegressor,
    TrellisSeq2Seq,
)
from trellisnet.models.bodies import BODIES, make_body
from trellisnet.models.options import LanguageOptions, Seq2SeqOptions, SequenceOptions

TOKENS = 12


def _size(body: str) -> dict[str, Any]:
    return {"hidden_size": 4, "num_layers": 2}


def language(draw: Draw, report: Report) -> None:
    """A language model on a trellis or on another body: loss, state, generation."""
    own = draw.chance(0.5)
    if own:
        kinds = {**body_kinds("trellis"), **declared(LanguageOptions), "vocab_size": "size", "embedding_size": "size"}
        del kinds["input_size"]
        given = {"vocab_size": TOKENS, "embedding_size": 4, **_size("trellis")}
        build: Any = TrellisLM
    else:
        kinds, given = {**declared(LanguageOptions), "vocab_size": "size"}, {"vocab_size": TOKENS}
        body = make_body(draw.choice(list(BODIES)), 4, **_size(""))

        def build(**options: Any) -> Any:
            return LanguageModel(body, **options)

    options = draw_options(draw, kinds, given, 0.1)
    if options.get("history") == "discard":
        options["horizon"] = 2
    wrong = _kept(spoil(draw, options, kinds), options)
    what = f"{'TrellisLM' if own else f'LanguageModel({type(body).__name__})'}({options})"
    model = judge(report, what, lambda: build(**options), wrong=wrong, names=options)
    if model is None or model.vocab_size > 100 or model.net.hidden_size > 100:
        return
    model.train(draw.chance(0.5))
    ids = torch.randint(model.vocab_size, (draw.randint(1, 3), draw.randint(3, 6)))

    def call() -> None:
        out = model(ids[:, :-1], ids[:, 1:])
        finite(out.loss, ())
        if model.training:
            out.loss.backward()
        else:
            again = model(ids, state=out.state)
            finite(again.log_prob, (*ids.shape, model.vocab_size))

    judge(report, f"{what} on {tuple(ids.shape)}", call)


def _kept(wrong: str | None, options: dict[str, Any]) -> str | None:
    """The wrong option, unless None stands for a default."""
    return None if wrong is None or options[wrong] is None else wrong


GENERATE = {
    "max_new_tokens": "size",
    "temperature": "positive",
    "top_k": "size",
    "top_p": "positive",
    "repetition_penalty": "positive",
    "seed": "count",
    "beams": "size",
    "length_penalty": "weight",
}
_LM: list[Any] = []


def generation(draw: Draw, report: Report) -> None:
    """`generate` with any prompts and options."""
    if not _LM:
        torch.manual_seed(0)
        _LM.append(TrellisLM(TOKENS, 4, 6, 2).eval())
    options: dict[str, Any] = {"max_new_tokens": draw.randint(1, 5)}
    for name, value in (("temperature", 0.5), ("top_k", 3), ("top_p", 0.9), ("seed", 1), ("repetition_penalty", 1.2)):
        if draw.chance(0.25):
            options[name] = value
    if draw.chance(0.2):
        options = {"max_new_tokens": 3, "beams": draw.randint(1, 4), "length_penalty": draw.choice([0, 0.5])}
    wrong = spoil(draw, options, GENERATE)
    if wrong is not None and (options[wrong] is None or wrong in ("length_penalty", "beams")):
        wrong = None  # these two depend on each other and on the rest
    length = draw.randint(1, 4)
    prompts: Any = torch.randint(TOKENS, (2, length))
    if draw.chance(0.15):
        odd = [
            torch.zeros(2, 0),
            torch.tensor([1, 2]),
            [[1], [2, 3]],
            [[]],
            [],
            "text",
            [[99]],
            [[-1]],
            [["a"]],
            [[1.5]],
        ]
        prompts, wrong = draw.choice([*odd, draw.anything()]), None

    def call() -> None:
        made = _LM[0].generate(prompts, **options)
        rows = made.tolist() if isinstance(made, torch.Tensor) else made
        assert all(0 <= token < TOKENS for row in rows for token in row), "a token that does not exist"
        assert all(len(row) <= 4 + options["max_new_tokens"] for row in rows), "too many tokens"

    judge(report, f"generate({prompts!r}, {options})", call, wrong=wrong, names=options)


SIZES = {  # of every kind of sequence model: its number of outputs
    TrellisClassifier: "num_classes",
    TrellisRegressor: "num_values",
    SequenceClassifier: "num_classes",
    SequenceRegressor: "num_values",
    SequenceLabeller: "num_labels",
    SequenceTagger: "num_classes",
}


def sequences(draw: Draw, report: Report) -> None:
    """Classifiers, regressors, labellers and taggers: predictions, and losses of ragged batches."""
    model_class: Any = draw.choice(list(SIZES))
    kinds, size = {**declared(SequenceOptions), SIZES[model_class]: "size"}, SIZES[model_class]
    if issubclass(model_class, SequenceRegressor):
        kinds["each_step"] = "flag"
    given: dict[str, Any] = {size: draw.randint(2, 4)}
    name, body = model_class.__name__, []
    if model_class in (TrellisClassifier, TrellisRegressor):
        kinds |= body_kinds("trellis")
        given |= {"input_size": 2, **_size("")}
    else:
        body = [make_body(draw.choice(list(BODIES)), 2, **_size(""))]
    options = draw_options(draw, kinds, given, 0.1)
    wrong = _kept(spoil(draw, options, kinds), options)
    what = f"{name}({options})"
    model = judge(report, what, lambda: model_class(*body, **options), wrong=wrong, names=options)
    if model is None or model.net.hidden_size > 100 or model.net.input_size != 2:
        return
    batch, steps = draw.randint(1, 3), draw.randint(1, 6)
    lengths = [draw.randint(1, steps) for _ in range(batch)] if draw.chance(0.5) else None
    x, width = torch.randn(batch, steps, 2), int(options[size])
    shape = (batch, steps, width) if model.each_step else (batch, width)
    labels = torch.randint(2, shape[:-1]) if size == "num_classes" else torch.randint(2, shape).float()
    targets = draw.choice([labels] * 6 + [draw.anything(), labels[:0], labels.to(torch.int64), labels * math.nan])
    model.train(draw.chance(0.5))

    def call() -> None:
        out = model(x, targets, lengths=lengths)
        finite(out.prediction, shape if model.spread is None else (*shape, model.spread.size + _degrees(model)))
        if targets is labels:
            finite(out.loss, ())
        made = model.predict(x, lengths)
        assert bool(torch.isfinite(made).all()), "not finite"
        if model.spread is not None:
            assert bool((made.diff(dim=-1) > 0).all()), "quantiles that cross"

    judge(report, f"{what} on {tuple(x.shape)}, {lengths}, {targets!r}", call)


def _degrees(model: Any) -> int:
    """1 for a distribution whose prediction has the degrees of freedom beside the readout's numbers."""
    return int(model.options.distribution == "student-t")


def translation(draw: Draw, report: Report) -> None:
    """`TrellisSeq2Seq`: loss and translation."""
    kinds = {**body_kinds("trellis"), **declared(Seq2SeqOptions)}
    del kinds["input_size"]
    kinds |= {"source_vocab_size": "size", "target_vocab_size": "size", "embedding_size": "size", "start": "count"}
    sizes = {"source_vocab_size": TOKENS, "target_vocab_size": TOKENS, "embedding_size": 4}
    options = draw_options(draw, {**kinds, "shared": "flag"}, {**sizes, **_size("")}, 0.08)
    options.pop("aux_every", None)
    wrong = _kept(spoil(draw, options, {**kinds, "shared": "flag"}), options)
    what = f"TrellisSeq2Seq({options})"
    model: Any = judge(report, what, lambda: TrellisSeq2Seq(**options), wrong=wrong, names=options)
    if model is None or model.net.hidden_size > 100 or len(model.embedding.weight) != TOKENS:
        return
    if len(model.source_embedding.weight) != TOKENS:
        return
    source, targets = torch.randint(TOKENS, (2, 4)), torch.randint(TOKENS, (2, 3))
    model.train(draw.chance(0.5))

    def call() -> None:
        finite(model(source, targets, lengths=[4, draw.randint(1, 4)]).loss, ())

    judge(report, what, call)
    search: dict[str, Any] = {"beams": 2, "end": 0, "max_length": 3}
    kinds = {"beams": "size", "length_penalty": "weight", "max_length": "size", "batch_size": "size", "end": "count"}
    wrong = _kept(spoil(draw, search, kinds), search)
    rows = draw.choice([[[1, 2]]] * 5 + [[], [[]], [[99]], ["text"], "text", [1], [[None]], [[-1]], [[1.5]]])
    wrong = wrong if rows == [[1, 2]] else None

    def search_it() -> None:
        found = model.translate(rows, **search)
        assert len(found) == len(rows), "not one translation per sentence"
        assert all(0 <= token < TOKENS for row in found for token in row), "a token that does not exist"

    judge(report, f"translate({rows}, {search})", search_it, wrong=wrong, names=search)
