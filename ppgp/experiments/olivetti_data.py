"""Photographs of faces rotated by random angles, split under three protocols.

The photographs are those of Samaria & Harter (1994), 10 of each of 40 people.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from scipy import ndimage
from torch import Tensor

from ..data.dataset import Dataset
from ..data.files.loading import load
from ..runtime.seeding import permutation, standard_uniform

LIMIT = 45.0  # degrees either way
SCALE = LIMIT / 3**0.5  # standard deviation of the angles
COPIES = 5  # of each photograph
TEST, CALIBRATION = 0.2, 0.1  # shares of the rows; the rest is for training

#: how each protocol prevents reading the angle from something other than the face
PROTOCOLS = {
    "document": "rows at random, whole frame",
    "disc": "rows at random, inscribed disc: the black corners of a turned frame "
    "give its angle away",
    "strict": "disc, and all copies of a photograph in one part",
}


@dataclass(frozen=True)
class Parts:
    """Training, calibration and test rows.

    The inputs are images [n, side^2], whose pixels are centred and scaled by those of ``train``.
    The targets are angles in units of ``SCALE`` degrees.
    """

    train: Dataset
    calibration: Dataset
    test: Dataset


def photographs(data_dir: str | Path | None, quick: bool) -> Tensor:
    """Return the photographs [400, 64, 64], with grey values in 0 .. 1.

    Args:
        data_dir: Scikit-learn's data folder, or a folder that contains it as ``olivetti``; None
            lets scikit-learn choose and download.
        quick: Return 80 photographs of 16 by 16 pixels.
    """
    if data_dir is not None and (Path(data_dir) / "olivetti").is_dir():
        data_dir = Path(data_dir) / "olivetti"
    faces = load("olivetti", data_home=data_dir).X
    faces = faces.reshape(-1, 64, 64)
    if quick:
        return faces[::5, ::4, ::4]
    return faces


def turned(faces: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Rotate each face COPIES times by random angles.

    The interpolation is bilinear, and pixels from outside the frame are black.

    Args:
        faces: Photographs [m, side, side].
        seed: Seed of the angles.

    Returns:
        Images [n, side, side], with the copies of a face next to each other, and angles [n] in
        degrees.
    """
    generator = torch.Generator().manual_seed(seed)
    uniform = standard_uniform(generator, COPIES * len(faces))
    angles = LIMIT * (2 * uniform - 1)
    images = []
    for i, angle in enumerate(angles.tolist()):
        face = faces[i // COPIES].numpy()
        images.append(torch.from_numpy(ndimage.rotate(face, angle, reshape=False, order=1)))
    return torch.stack(images), angles


def disc(side: int) -> Tensor:
    """Return the mask [side, side] of the pixels that no rotation moves out of the frame."""
    centred = torch.arange(side) - (side - 1) / 2
    return centred[:, None].square() + centred.square() <= ((side - 1) / 2) ** 2


def parts(protocol: str, images: Tensor, angles: Tensor, seed: int) -> Parts:
    """Split the rows into disjoint training, calibration and test rows.

    Args:
        protocol: A key of ``PROTOCOLS``.
        images: Images [n, side, side].
        angles: Angles [n] in degrees.
        seed: Seed of the split.
    """
    generator = torch.Generator().manual_seed(seed)
    group = COPIES if protocol == "strict" else 1
    order = permutation(generator, len(images) // group)
    rows = (group * order[:, None] + torch.arange(group)).flatten()
    n_test = group * round(TEST * len(order))
    n_held_out = group * round((TEST + CALIBRATION) * len(order))
    pieces = [rows[n_held_out:], rows[n_test:n_held_out], rows[:n_test]]
    if protocol != "document":
        images = images * disc(images.shape[-1])
    X, y = images.flatten(1), angles / SCALE
    centre, spread = X[pieces[0]].mean(), X[pieces[0]].std()
    return Parts(
        *(Dataset((X[piece] - centre) / spread, y[piece], target_name="angle") for piece in pieces)
    )
