"""Random variation of training images: they are turned, zoomed, moved and mirrored, by new amounts in every epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import boolean, non_negative, probability


@dataclass(frozen=True)
class Variation:
    """How far images may be changed.

    Args:
        shift: move by up to n pixels, in both directions.
        rotate: turn by up to n degrees, both ways.
        zoom: enlarge or shrink by up to this share.
        mirror: mirror every second image left to right.
    """

    shift: float = 0.0
    rotate: float = 0.0
    zoom: float = 0.0
    mirror: bool = False
    draws: ClassVar[int] = 5  # random numbers per image

    def __post_init__(self) -> None:
        non_negative("shift", self.shift)
        non_negative("rotate", self.rotate)
        probability("zoom", self.zoom)
        boolean("mirror", self.mirror)

    def __bool__(self) -> bool:
        return self != Variation()

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
        between = torch.from_numpy(2 * draws - 1)  # -1 to 1
        angle = between[:, 0] * math.radians(self.rotate)
        scale = 1 + between[:, 1] * self.zoom
        across, down = (between[:, 2 + i] * self.shift * 2 / size for i, size in enumerate((width, height)))
        side = torch.where(between[:, 4] < 0, -1.0, 1.0) if self.mirror else torch.ones(len(draws))
        cos, sin = scale * angle.cos(), scale * angle.sin()
        # where the pixel at (x, y) is read, in units of half an image
        rows = [[cos * side, -sin * height / width, across], [sin * side * width / height, cos, down]]
        places = torch.stack([torch.stack(row, 1) for row in rows], 1).float()  # (B, 2, 3)
        grid = affine_grid(places, list(images.shape), align_corners=False)
        return grid_sample(torch.from_numpy(images), grid, padding_mode="border", align_corners=False).numpy()
