"""Build a model from the name of a body and a flat set of options, as a recipe has them."""

from __future__ import annotations

from typing import Any

from trellisnet.models.bodies import body_options, make_body
from trellisnet.models.language import LanguageModel
from trellisnet.models.options import LanguageOptions, SequenceOptions, split_options
from trellisnet.models.seq2seq import Seq2Seq
from trellisnet.models.sequence import SequenceClassifier, SequenceLabeller, SequenceRegressor, SequenceTagger
from trellisnet.models.translation import end_of_sentence
from trellisnet.models.trellis import TrellisClassifier, TrellisLM, TrellisRegressor
from trellisnet.vocabulary import Vocabulary


def build_language_model(
    body: str, vocab_size: int, embedding_size: int, vocabulary: Vocabulary | None = None, **options: Any
) -> LanguageModel:
    """Build a language model on a named body; `options` are those of `LanguageOptions` and of the body.

    >>> build_language_model("gru", vocab_size=50, embedding_size=8, hidden_size=16).net.output_size
    8
    """
    if body == "trellis":
        return TrellisLM(vocab_size, embedding_size, vocabulary=vocabulary, **options)
    own, net = split_options(options, LanguageOptions, body_options(body))
    if LanguageOptions(**own).reads_embedding and net.get("output_size") is None:
        net["output_size"] = embedding_size
    return LanguageModel(make_body(body, embedding_size, **net), vocab_size, vocabulary=vocabulary, **own)


def build_classifier(body: str, input_size: int, num_classes: int, **options: Any) -> SequenceClassifier:
    """Build a classifier on a named body; `options` are those of `SequenceOptions` and of the body."""
    if body == "trellis":
        return TrellisClassifier(input_size, num_classes=num_classes, **options)
    own, net = split_options(options, SequenceOptions, body_options(body))
    return SequenceClassifier(make_body(body, input_size, **net), num_classes, **own)


def build_regressor(body: str, input_size: int, num_values: int, **options: Any) -> SequenceRegressor:
    """Build a regressor on a named body; `options` are those of `SequenceOptions` and of the body."""
    if body == "trellis":
        return TrellisRegressor(input_size, num_values=num_values, **options)
    own, net = split_options(options, SequenceOptions, body_options(body))
    return SequenceRegressor(make_body(body, input_size, **net), num_values, **own)


def build_labeller(body: str, input_size: int, num_labels: int, **options: Any) -> SequenceLabeller:
    """Build a labeller of every step on a named body; `options` are those of `SequenceOptions` and of the body."""
    own, net = split_options(options, SequenceOptions, body_options(body))
    return SequenceLabeller(make_body(body, input_size, **net), num_labels, **own)


def build_tagger(body: str, input_size: int, num_classes: int, **options: Any) -> SequenceTagger:
    """Build a classifier of every step on a named body; `options` are those of `SequenceOptions` and of the body."""
    own, net = split_options(options, SequenceOptions, body_options(body))
    return SequenceTagger(make_body(body, input_size, **net), num_classes, **own)


def build_seq2seq(body: str, source: Vocabulary, target: Vocabulary, embedding_size: int, **options: Any) -> Seq2Seq:
    """Build a translator on a named body; equal vocabularies share an embedding."""
    return Seq2Seq(
        len(source),
        len(target),
        embedding_size,
        body=body,
        start=end_of_sentence(target),
        shared=source == target,
        source_vocabulary=source,
        target_vocabulary=target,
        **options,
    )
