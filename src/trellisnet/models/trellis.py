"""The models on a trellis network, which they build themselves: language model, classifier, regressor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from typing_extensions import Self

from trellisnet.core.checks import positive_int
from trellisnet.core.options import TrellisOptions
from trellisnet.core.trellis import TrellisNet
from trellisnet.models import authors
from trellisnet.models.bodies import options_of
from trellisnet.models.language import LanguageModel
from trellisnet.models.options import LanguageOptions, SequenceOptions, split_options
from trellisnet.models.pretrained import BuildsItsBody
from trellisnet.models.sequence import SequenceClassifier, SequenceRegressor
from trellisnet.vocabulary import Vocabulary


class TrellisLM(LanguageModel, BuildsItsBody):
    """A language model on a trellis network.

    Args:
        vocab_size: number V of tokens.
        embedding_size: number E of channels of a token's vector.
        hidden_size, num_layers: width and depth of the trellis. `hidden_size` includes the output channels; the paper's
            tables count without them.
        output_size: number of channels that the head reads; default `embedding_size` if a tied head "softmax" or
            "cluster" needs that, otherwise `hidden_size`.
        head: "softmax", "mos", "moc", "adaptive" or "cluster".
        vocabulary: the tokens, for methods that take text; saved with the model.
        device, dtype: of the weights; default torch's.
        options: further options of `LanguageOptions` and `TrellisOptions`.

    >>> lm = TrellisLM(vocab_size=50, embedding_size=8, hidden_size=32, num_layers=4)
    >>> ids = torch.randint(50, (2, 21))
    >>> out = lm(ids[:, :-1], ids[:, 1:])
    >>> out.loss.backward()
    >>> out = lm(ids[:, :-1], ids[:, 1:], out.state)  # continue from the state
    >>> tuple(lm.log_prob(ids).shape)
    (2, 21, 50)
    """

    net: TrellisNet

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        hidden_size: int,
        num_layers: int,
        output_size: int | None = None,
        head: str = "softmax",
        *,
        vocabulary: Vocabulary | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        own, net = split_options({**options, "head": head}, LanguageOptions, TrellisOptions)
        embedding_size = positive_int("embedding_size", embedding_size)
        if output_size is None and LanguageOptions(**own).reads_embedding:
            output_size = embedding_size
            if embedding_size > positive_int("hidden_size", hidden_size):
                raise ValueError(
                    f"hidden_size must be at least embedding_size = {embedding_size}, which is the output's size when "
                    f"the two are tied, got {hidden_size}; or choose read_all=True or tied=False"
                )
        body = TrellisNet(embedding_size, hidden_size, num_layers, output_size, device=device, dtype=dtype, **net)
        super().__init__(body, vocab_size, vocabulary=vocabulary, **own)

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "embedding_size": self.net.input_size, **options_of(self.net)}

    @classmethod
    def from_authors(
        cls,
        path: Path | str,
        num_layers: int | None = None,
        dilation: int | Sequence[int] = 1,
        **options: Any,
    ) -> Self:
        """Load a model that the authors' code saved with `torch.save(model.state_dict(), path)`; in evaluation mode.

        The file contains the weights only, so some options must be given.

        Args:
            path: the file. It is read with `weights_only=True`: a pickle that contains anything else is refused.
            num_layers: default the paper's, for models of the paper's sizes.
            dilation: the paper's language models have 1.
            options: dropouts, `aux_every`, `aux_weight`, `history`, ...

        Raises:
            ValueError: the file is not such a model, or does not fit the options.
        """
        path = Path(path)
        arguments, tensors, their_names = authors.read_checkpoint(path, num_layers)
        try:
            model = cls(**{**arguments, "dilation": dilation, **options})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} and the options given do not make a model: {error}") from None
        model._load_tensors(tensors, path, their_names)
        return model.eval()


class TrellisClassifier(SequenceClassifier, BuildsItsBody):
    """A classifier on a trellis network, with one label per sequence.

    Args:
        input_size, hidden_size, num_layers: sizes of the trellis.
        num_classes: labels are 0 .. num_classes - 1.
        output_size: number of channels that the readout reads; default all of `hidden_size`.
        device, dtype: of the weights; default torch's.
        options: further options of `SequenceOptions` and `TrellisOptions`.

    >>> model = TrellisClassifier(input_size=3, hidden_size=16, num_layers=4, num_classes=5, dilation=[1, 2, 4, 8])
    >>> x, labels = torch.randn(2, 30, 3), torch.tensor([4, 0])
    >>> model(x, labels, lengths=[30, 12]).loss.backward()
    >>> tuple(model(x).prediction.shape)
    (2, 5)
    >>> model.predict(x).shape
    torch.Size([2])
    """

    net: TrellisNet

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        num_classes: int,
        output_size: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        own, net = split_options(options, SequenceOptions, TrellisOptions)
        positive_int("num_classes", num_classes, minimum=2)
        body = TrellisNet(input_size, hidden_size, num_layers, output_size, device=device, dtype=dtype, **net)
        super().__init__(body, num_classes, **own)

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "input_size": self.net.input_size, **options_of(self.net)}


class TrellisRegressor(SequenceRegressor, BuildsItsBody):
    """A regressor on a trellis network, with one or several values per sequence or per step.

    Args:
        input_size, hidden_size, num_layers: sizes of the trellis.
        num_values: number of values.
        each_step: predict at every step instead of the last one only. Calls then return a state to continue from.
        output_size: number of channels that the readout reads; default all of `hidden_size`.
        device, dtype: of the weights; default torch's.
        options: further options of `SequenceOptions` and `TrellisOptions`.

    >>> model = TrellisRegressor(input_size=3, hidden_size=16, num_layers=4, each_step=True)
    >>> x = torch.randn(2, 30, 3)
    >>> model(x, targets=x[..., :1], lengths=[30, 12]).loss.backward()
    >>> out = model(x)
    >>> out = model(torch.randn(2, 1, 3), state=out.state)  # the next step
    >>> tuple(out.prediction.shape)
    (2, 1, 1)
    """

    net: TrellisNet

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        num_values: int = 1,
        each_step: bool = False,
        output_size: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        own, net = split_options(options, SequenceOptions, TrellisOptions)
        body = TrellisNet(input_size, hidden_size, num_layers, output_size, device=device, dtype=dtype, **net)
        super().__init__(body, num_values, each_step, **own)

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "input_size": self.net.input_size, **options_of(self.net)}
