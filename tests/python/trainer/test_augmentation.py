"""What the loader makes of an image is what torchvision makes of it: crops, resizing, and each operation."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from imgtrain_ranks import BIN
from numpy.typing import NDArray
from PIL import Image
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

DUMP = BIN / "loader_dump"
SIZE = 64
RESIZE = 72


def dump(*arguments: object) -> str:
    return subprocess.run([DUMP, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def photograph(width: int, height: int, seed: int) -> Image.Image:
    """Something with soft and hard edges and a grain, as a camera gives it."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for _ in range(3):
        f, g, p = rng.uniform(0.01, 0.08, 3)
        plane = 128 + 60 * np.sin(f * x + 7 * p) + 40 * np.cos(g * y + f * x)
        plane[(x // 37 + y // 23) % 5 == seed % 5] += 30
        planes.append(plane + rng.normal(0, 4, plane.shape))
    return Image.fromarray(np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photographs")
    sizes = [(500, 375), (375, 500), (333, 500), (64, 64), (90, 70), (640, 200), (200, 640), (1000, 800)]
    for i in range(24):
        width, height = sizes[i % len(sizes)]
        folder = root / f"c{i % 2}"
        folder.mkdir(exist_ok=True)
        image = photograph(width, height, i)
        image = image.convert("L") if i % 11 == 10 else image
        image.save(folder / f"{i:02}.jpg", quality=90, subsampling=(0, 2)[i % 2])
    return root


def open_rgb(path: Path) -> torch.Tensor:
    pixels: torch.Tensor = F.pil_to_tensor(Image.open(path).convert("RGB"))
    return pixels


def pictures(path: Path) -> NDArray[np.uint8]:
    return np.fromfile(path, np.uint8).reshape(-1, SIZE, SIZE, 3)


def mean_difference(ours: NDArray[np.uint8], theirs: torch.Tensor) -> float:
    return float(np.abs(ours.astype(int) - theirs.permute(1, 2, 0).numpy().astype(int)).mean())


@pytest.mark.parametrize(("mode", "allowed"), [("exact", 1), ("fast", 4)])
def test_random_resized_crop(mode: str, allowed: float, photographs: Path, tmp_path: Path) -> None:
    lines = dump("training", mode, SIZE, RESIZE, photographs, tmp_path / "out.rgb").splitlines()
    ours = pictures(tmp_path / "out.rgb")
    assert len(lines) == len(ours) == 24
    differences = []
    for line, picture in zip(lines, ours, strict=True):
        name, *numbers = line.split()
        left, top, width, height, flip = map(int, numbers)
        image = open_rgb(photographs / name)
        theirs = F.resized_crop(image, top, left, height, width, [SIZE, SIZE], antialias=True)
        if flip:
            theirs = F.horizontal_flip(theirs)
        differences.append(mean_difference(picture, theirs))
        assert differences[-1] <= allowed, line
    print(f"{mode}: mean {np.mean(differences):.3f}, worst image {np.max(differences):.3f} of 255")
    assert mode == "exact" or np.mean(differences) > 0.2, "fast mode let the decoder shrink nothing"


@pytest.mark.parametrize(("mode", "allowed"), [("exact", 1), ("fast", 4)])
def test_validation_resize_and_centre_crop(mode: str, allowed: float, photographs: Path, tmp_path: Path) -> None:
    lines = dump("validation", mode, SIZE, RESIZE, photographs, tmp_path / "out.rgb").splitlines()
    transform = v2.Compose([v2.Resize(RESIZE, antialias=True), v2.CenterCrop(SIZE)])
    differences = [
        mean_difference(picture, transform(open_rgb(photographs / name)))
        for name, picture in zip(lines, pictures(tmp_path / "out.rgb"), strict=True)
    ]
    print(f"{mode}: mean {np.mean(differences):.3f}, worst image {np.max(differences):.3f} of 255")
    assert max(differences) <= allowed


WIDTH, HEIGHT = 96, 64
OPERATIONS = [
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
]
MOVES = OPERATIONS[1:6]


def test_the_strengths_are_torchvisions() -> None:
    for policy, transform in (("randaugment", v2.RandAugment), ("trivialaugment", v2.TrivialAugmentWide)):
        lines = dump("magnitudes", policy, WIDTH, HEIGHT).splitlines()
        assert [line.split()[0] for line in lines] == OPERATIONS == list(transform._AUGMENTATION_SPACE)
        for line in lines:
            name, signed, *values = line.split()
            magnitudes, theirs_signed = transform._AUGMENTATION_SPACE[name]
            assert bool(int(signed)) == theirs_signed, name
            theirs = magnitudes(31, HEIGHT, WIDTH)
            expected = [0.0] * 31 if theirs is None else [float(value) for value in theirs]
            assert [float(value) for value in values] == pytest.approx(expected, abs=1e-4), (policy, name)


def strengths(name: str) -> list[float]:
    """Weak and strong ones of both policies, in both directions."""
    magnitudes, signed = v2.TrivialAugmentWide._AUGMENTATION_SPACE[name]
    values = magnitudes(31, HEIGHT, WIDTH)
    if values is None:
        return [0.0]
    chosen = [float(values[i]) for i in (0, 1, 9, 17, 30)]
    return chosen + [-value for value in chosen if value != 0] if signed else chosen


@pytest.mark.parametrize(
    ("name", "interpolation"),
    [(name, "nearest") for name in OPERATIONS] + [(name, "bilinear") for name in MOVES],
)
def test_an_operation_gives_torchvisions_pixels(name: str, interpolation: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    for source, picture in enumerate([np.asarray(photograph(WIDTH, HEIGHT, 3)), noise, noise // 3 + 50]):
        file = tmp_path / f"{source}.rgb"
        file.write_bytes(np.ascontiguousarray(picture).tobytes())
        for strength in strengths(name):
            out = tmp_path / "out.rgb"
            out.unlink(missing_ok=True)
            dump("op", name, repr(strength), interpolation, WIDTH, HEIGHT, file, out)
            ours = np.fromfile(out, np.uint8).reshape(HEIGHT, WIDTH, 3).astype(int)
            theirs = v2.RandAugment()._apply_image_or_video_transform(
                torch.tensor(picture).permute(2, 0, 1).contiguous(),
                name,
                strength,
                interpolation=InterpolationMode(interpolation),
                fill={},
            )
            difference = np.abs(ours - theirs.permute(1, 2, 0).numpy().astype(int))
            if name in MOVES and interpolation == "nearest":
                # A pixel that lies half way between two may come from either.
                assert (difference.max(-1) > 0).mean() < 0.005, strength
            else:
                # A float may be rounded the other way.
                assert difference.max() <= 1 and (difference > 0).mean() < 0.01, strength


def test_an_erased_box_keeps_to_random_erasings_shares() -> None:
    """The C++ test checks the boxes; this one that torchvision's are still chosen in the way copied from it."""
    transform = v2.RandomErasing(p=1)
    assert (transform.scale, transform.ratio) == ((0.02, 0.33), (0.3, 3.3))
    assert transform._log_ratio.tolist() == pytest.approx([math.log(0.3), math.log(3.3)])
