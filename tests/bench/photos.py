"""JPEG files that look like photographs to a decoder: the same scenes at two qualities.

A scene is what the statistics of natural images are known by: surfaces that hide one another (dead leaves, their sizes
following a power law), each with a colour, a gradient and a 1/f texture of its own strength, softened as by a lens,
with a little noise; brightness and colour vary together. Seeded: the same files on each machine with the same Pillow.
"""

from __future__ import annotations

import functools
import io
import json
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

WIDTH, HEIGHT = 500, 375
CLASSES = 20
SEED = 4
Floats = NDArray[np.float32]


@functools.cache
def pink_filter() -> Floats:
    """Amplitude 1/f for each frequency of rfft2."""
    fy, fx = np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None, :]
    f = np.hypot(fy, fx)
    f[0, 0] = 1
    pink = (1 / f).astype(np.float32)
    pink[0, 0] = 0
    return pink


def texture(rng: np.random.Generator) -> Floats:
    """1/f noise of unit deviation."""
    white = np.fft.rfft2(rng.standard_normal((HEIGHT, WIDTH), dtype=np.float32))
    field = np.fft.irfft2(white * pink_filter(), s=(HEIGHT, WIDTH)).astype(np.float32)
    return field / field.std()


def leaf(draw: ImageDraw.ImageDraw, rng: np.random.Generator, number: int) -> None:
    """A disc, an ellipse or a polygon; small ones are many, large ones few."""
    radius = 8 / (0.02 + rng.random()) ** 0.9
    x, y = rng.random() * WIDTH, rng.random() * HEIGHT
    flat = rng.uniform(0.3, 1)
    if rng.random() < 0.5:
        draw.ellipse((x - radius, y - radius * flat, x + radius, y + radius * flat), fill=number)
        return
    corners = np.sort(rng.random(rng.integers(3, 8))) * 2 * np.pi
    turn = rng.random() * np.pi
    px, py = radius * np.cos(corners), radius * flat * np.sin(corners)
    points = np.stack([x + px * np.cos(turn) - py * np.sin(turn), y + px * np.sin(turn) + py * np.cos(turn)], axis=1)
    draw.polygon([tuple(p) for p in points.tolist()], fill=number)


def scene(index: int) -> Image.Image:
    rng = np.random.default_rng([SEED, index])
    leaves = 250
    owner = Image.new("I", (WIDTH, HEIGHT))
    draw = ImageDraw.Draw(owner)
    for number in range(1, leaves):
        leaf(draw, rng, number)
    own = np.asarray(owner)
    # For each surface: brightness, two colour differences that follow it, slope of the light, strength of texture.
    light = rng.normal(0, 42, leaves).astype(np.float32)
    blue = (-0.25 * light + rng.normal(0, 14, leaves)).astype(np.float32)
    red = (0.2 * light + rng.normal(0, 14, leaves)).astype(np.float32)
    slope = rng.normal(0, 0.1, (2, leaves)).astype(np.float32)
    rough = rng.gamma(1.2, 13, leaves).astype(np.float32)
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    grain, hue = texture(rng), texture(rng)
    luma = 118 + light[own] + slope[0][own] * (x - WIDTH / 2) + slope[1][own] * (y - HEIGHT / 2) + rough[own] * grain
    cb = blue[own] + 5 * hue - 0.06 * rough[own] * grain
    cr = red[own] - 4 * hue + 0.05 * rough[own] * grain
    luma += rng.standard_normal((HEIGHT, WIDTH), dtype=np.float32) * rng.uniform(1, 4)
    rgb = np.stack([luma + 1.402 * cr, luma - 0.344 * cb - 0.714 * cr, luma + 1.772 * cb], axis=-1)
    sharp = Image.fromarray(np.clip(rgb, 0, 255).astype(np.uint8))
    return sharp.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 0.7))))


def encode(image: Image.Image, quality: int) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality, subsampling="4:2:0")
    return out.getvalue()


def sample_bytes(index: int, qualities: range) -> list[int]:
    image = scene(index)
    return [len(encode(image, quality)) for quality in qualities]


def write_one(index: int, count: int, sets: dict[str, int], root: Path) -> None:
    image = scene(index)
    for name, quality in sets.items():
        folder = root / name / f"class_{index * CLASSES // count:02}"
        (folder / f"{index:05}.jpg").write_bytes(encode(image, quality))


def photos(root: Path, count: int, sizes: dict[str, int]) -> dict[str, Path]:
    """A folder of classes for each of `sizes` (name -> mean bytes of a file), made once and kept under root."""
    home = root / str(count)
    wanted = {"version": 1, "count": count, "seed": SEED, "sizes": sizes, "pillow": Image.__version__}
    done = home / "photos.json"
    if not done.exists() or json.loads(done.read_text())["wanted"] != wanted:
        shutil.rmtree(home, ignore_errors=True)
        qualities = range(60, 101)
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            tried = range(0, count, max(count // 40, 1))
            means = np.mean(list(pool.map(functools.partial(sample_bytes, qualities=qualities), tried)), axis=0)
            chosen = {name: qualities[int(np.abs(means - size).argmin())] for name, size in sizes.items()}
            for name in sizes:
                for c in range(CLASSES):
                    (home / name / f"class_{c:02}").mkdir(parents=True)
            one = functools.partial(write_one, count=count, sets=chosen, root=home)
            list(pool.map(one, range(count), chunksize=16))
        done.write_text(json.dumps({"wanted": wanted, "qualities": chosen}) + "\n")
    return {name: home / name for name in sizes}


if __name__ == "__main__":
    import sys

    for name, folder in photos(Path(sys.argv[1]), int(sys.argv[2]), {"70k": 70_000, "110k": 110_000}).items():
        lengths = [p.stat().st_size for p in folder.rglob("*.jpg")]
        print(name, len(lengths), "files, mean", round(sum(lengths) / len(lengths)), min(lengths), max(lengths))
