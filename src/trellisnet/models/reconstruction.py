"""The reconstruction loss of r-LSTMs (Trinh et al., 2018): at some step, what was read before can be told again.

From the body's output at a random step, the anchor, a decoder reconstructs the stretch of inputs that ends there:

    s            = tanh(W output(a) + b)                      states h, c of the decoder's layers at its beginning
    x'(a-n+1..a) = V LSTM(0, x(a-n+1), ..., x(a-1); s) + v    it reads the true input one step earlier
    loss         = mean of (x' - x)^2

So gradients reach the anchor from its own stretch, however far the end of the sequence is. The decoder exists for the
loss only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from trellisnet.models.heads.base import at_least_single
from trellisnet.models.options import SequenceOptions

LAYERS, WIDTH = 2, 128


def reconstruction_for(body: Any, options: SequenceOptions, where: dict[str, Any]) -> Reconstruction | None:
    """The decoder that a model's options ask for, on a device and in a dtype."""
    if options.reconstruct_steps is None:
        return None
    sizes = options.reconstruct_steps, options.reconstruct_size or WIDTH
    return Reconstruction(body.input_size, body.output_size, *sizes, **where)


class Reconstruction(nn.Module):
    """A decoder of stretches of the input.

    Args:
        input_size: channels of the input.
        output_size: channels of the body's output.
        steps: length of a stretch.
        hidden_size: width of the decoder's layers.
        where: device and dtype.
    """

    def __init__(self, input_size: int, output_size: int, steps: int, hidden_size: int, **where: Any) -> None:
        super().__init__()
        self.steps = steps
        self.start = nn.Linear(output_size, 2 * LAYERS * hidden_size, **where)
        self.decoder = nn.LSTM(input_size, hidden_size, LAYERS, **where)
        self.readout = nn.Linear(hidden_size, input_size, **where)

    def forward(self, x: Tensor, output: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The loss of one random anchor per sequence; a sequence shorter than a stretch is reconstructed from its end.

        Args:
            x: the input (T, B, C).
            output: the body's output (T, B, D).
            lengths: the length of each sequence; default T.
        """
        ends = torch.full((x.shape[1],), len(x), device=x.device) if lengths is None else lengths.to(x.device)
        first = ends.clamp(max=self.steps)
        anchors = first + (torch.rand(len(ends), device=x.device) * (ends - first + 1)).long()  # steps up to the anchor
        return self.at(x, output, anchors)

    def at(self, x: Tensor, output: Tensor, anchors: Tensor) -> Tensor:
        """The loss of the stretches before given anchors; an anchor (B) is the number of steps that it has seen."""
        sequences = torch.arange(x.shape[1], device=x.device)
        count = min(self.steps, len(x))
        places = anchors + torch.arange(-count, 0, device=x.device)[:, None]  # (count, B)
        inside = places >= 0
        stretch = x[places.clamp(min=0), sequences] * inside[..., None]
        states = self.start(output[anchors - 1, sequences]).tanh()
        h, c = (state.contiguous() for state in states.unflatten(1, (2, LAYERS, -1)).permute(1, 2, 0, 3))
        before = torch.cat([torch.zeros_like(stretch[:1]), stretch[:-1]])
        found = at_least_single(self.readout(self.decoder(before, (h, c))[0]))
        return (found - stretch)[inside].square().mean()
