"""Random variation of training images: they are turned, zoomed, moved and mirrored, by new amounts in every epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import boolean, non_negative, probability


@dataclass(frozen=True)
class Variation:
    """How far what is read of an image may differ from the image.

    Args:
        shift: its middle moves by up to n pixels, across and down.
        rotate: it is turned by up to n degrees, both ways.
        zoom: it is larger or smaller by up to this share.
        mirror: it is mirrored left to right, in half of the cases.
    """

    shift: float = 0.0
    rotate: float = 0.0
    zoom: float = 0.0
    mirror: bool = False
    draws: ClassVar[int] = 5  # random numbers per image

    def __post_init__(self) -> None:
        checks = {"shift": non_negative, "rotate": non_negative, "zoom": probability, "mirror": boolean}
        for name, check in checks.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))

    def __str__(self) -> str:
        changed = (field for field in fields(self) if getattr(self, field.name) != field.default)
        return ", ".join(f"{field.name}={getattr(self, field.name):g}" for field in changed)

    def apply(self, images: NDArray[np.float32], draws: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return changed images.

        Values between pixels are interpolated linearly; what comes in from outside is like the nearest edge pixel.

        Args:
            images: (B, C, height, width).
            draws: (B, 5), numbers from 0 to 1: how far each image is turned, zoomed, moved across and moved down, where
                0.5 is not at all; and below 0.5 the image is mirrored, if `mirror` is true.
        """
        import torch  # noqa: PLC0415
        from torch.nn.functional import affine_grid, grid_sample  # noqa: PLC0415

        height, width = images.shape[2:]
        amounts = torch.from_numpy(2 * draws - 1)  # (B, 5), -1 to 1
        angle = amounts[:, 0] * math.radians(self.rotate)
        scale = 1 + amounts[:, 1] * self.zoom
        across, down = (amounts[:, 2 + i] * self.shift * 2 / size for i, size in enumerate((width, height)))
        sign = torch.where(amounts[:, 4] < 0, -1.0, 1.0) if self.mirror else torch.ones_like(angle)
        cos, sin = scale * angle.cos(), scale * angle.sin()
        # where the pixel at (x, y) is read, in units of half an image
        rows = [[cos * sign, -sin * height / width, across], [sin * sign * width / height, cos, down]]
        maps = torch.stack([torch.stack(row, 1) for row in rows], 1).float()  # (B, 2, 3)
        grid = affine_grid(maps, list(images.shape), align_corners=False)
        return grid_sample(torch.from_numpy(images), grid, padding_mode="border", align_corners=False).numpy()
