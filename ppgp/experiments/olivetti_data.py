"""Photographs of faces turned by random angles: the rows of the Olivetti experiment, under three protocols.

Samaria & Harter (1994) took the photographs, 10 each of 40 people.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from scipy import ndimage
from torch import Tensor, nn

from ..data.dataset import Dataset
from ..data.loading import load

LIMIT = 45.0  # degrees either way
SCALE = LIMIT / 3**0.5  # standard deviation of the angles
COPIES = 5  # of each photograph
TEST, CALIBRATION = 0.2, 0.1  # shares of the rows; the rest is for training

#: what each protocol does against reading the angle off something else than the face
PROTOCOLS = {
    "document": "rows at random, whole frame",
    "disc": "rows at random, inscribed disc: the black corners of a turned frame give its angle away",
    "strict": "disc, and all copies of a photograph in one part",
}


@dataclass(frozen=True)
class Parts:
    """Rows of images [n, side^2], pixels centred and scaled by those of ``train``, and angles in units of ``SCALE``."""

    train: Dataset
    calibration: Dataset
    test: Dataset


def photographs(data_dir: str | Path | None, quick: bool) -> Tensor:
    """[400, 64, 64] in 0 .. 1, or a few small ones; ``data_dir``: scikit-learn's folder, or that of several data sets with it inside."""
    home = None if data_dir is None else Path(data_dir)
    home = home / "olivetti" if home is not None and (home / "olivetti").is_dir() else home
    faces = load("olivetti", data_home=home).X
    faces = faces.reshape(-1, 64, 64)
    return faces[::5, ::4, ::4] if quick else faces


def turned(faces: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Each face COPIES times, copies of a face side by side: images [n, side, side] and angles [n] in degrees.

    Bilinear; what lies outside the frame is black.
    """
    generator = torch.Generator().manual_seed(seed)
    angles = LIMIT * (
        2 * torch.rand(COPIES * len(faces), generator=generator, dtype=torch.float64) - 1
    )
    images = [
        torch.from_numpy(
            ndimage.rotate(faces[i // COPIES].numpy(), float(angle), reshape=False, order=1)
        )
        for i, angle in enumerate(angles)
    ]
    return torch.stack(images), angles


def disc(side: int) -> Tensor:
    """[side, side] bool: the pixels whose centres a rotation never takes out of the frame."""
    centred = torch.arange(side) - (side - 1) / 2
    return centred[:, None].square() + centred.square() <= ((side - 1) / 2) ** 2


def parts(protocol: str, images: Tensor, angles: Tensor, seed: int) -> Parts:
    """Training, calibration and test rows; no row is in two."""
    generator = torch.Generator().manual_seed(seed)
    group = COPIES if protocol == "strict" else 1
    order = torch.randperm(len(images) // group, generator=generator)
    rows = (group * order[:, None] + torch.arange(group)).flatten()
    a, b = (group * round(share * len(order)) for share in (TEST, TEST + CALIBRATION))
    pieces = [rows[b:], rows[a:b], rows[:a]]
    if protocol != "document":
        images = images * disc(images.shape[-1])
    X, y = images.flatten(1), angles / SCALE
    centre, spread = X[pieces[0]].mean(), X[pieces[0]].std()
    return Parts(
        *(Dataset((X[piece] - centre) / spread, y[piece], target_name="angle") for piece in pieces)
    )


def mirrored(data: Dataset) -> Dataset:
    """The rows, and each seen in a mirror, which turns the sign of its angle."""
    side = round(data.d**0.5)
    other = data.X.reshape(-1, side, side).flip(2).flatten(1)
    return Dataset(
        torch.cat([data.X, other]), torch.cat([data.y, -data.y]), target_name=data.target_name
    )


class Odd(nn.Module):
    """g -> (g(x) - g(mirror image of x)) / 2: what changes its sign with the angle."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        side = round(x.shape[-1] ** 0.5)
        other = x.reshape(-1, side, side).flip(2).flatten(1)
        return (self.module(x) - self.module(other)) / 2
