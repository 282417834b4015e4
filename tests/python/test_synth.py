"""The drawn data set needs a network: simpler learners must not do well on it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("IMGD_BIN", ROOT / "build/release/bin"))


def synth(out: Path, *args: str) -> Path:
    subprocess.run([BIN / "imgcli", "dataset", "synth", *args, out], check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synth(tmp_path_factory.mktemp("synth") / "shapes", "--classes", "10", "--per-class", "200",
                 "--val-per-class", "50", "--size", "96x96", "--seed", "1")  # fmt: skip


def load(split: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images as [N, 32, 32, 3] uint8, and labels [N]."""
    images, labels = [], []
    for label, folder in enumerate(sorted(split.iterdir())):
        for path in sorted(folder.iterdir()):
            images.append(np.asarray(Image.open(path).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)))
            labels.append(label)
    return np.stack(images), np.asarray(labels)


def linear_top1(train: np.ndarray, train_labels: np.ndarray, val: np.ndarray, val_labels: np.ndarray) -> float:
    """Best validation top-1 of a softmax regression over several strengths of regularisation."""
    mean, scale = train.mean(0), train.std(0) + 1e-6
    x, v = (torch.tensor((a - mean) / scale, dtype=torch.float32) for a in (train, val))
    y, w = torch.tensor(train_labels), torch.tensor(val_labels)
    best = 0.0
    for decay in (1e-4, 1e-2, 1e-1, 1.0):
        torch.manual_seed(0)
        model = torch.nn.Linear(x.shape[1], 10)
        torch.nn.init.zeros_(model.weight)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=60, line_search_fn="strong_wolfe")

        def closure(model: torch.nn.Linear = model, optimizer: torch.optim.LBFGS = optimizer, decay: float = decay):  # noqa: ANN202
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y) + decay * model.weight.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        best = max(best, (model(v).argmax(1) == w).float().mean().item())
    return best


def test_a_linear_classifier_on_pixels_stays_below_40_percent(shapes: Path) -> None:
    train, train_labels = load(shapes / "train")
    val, val_labels = load(shapes / "val")
    top1 = linear_top1(train.reshape(len(train), -1) / 255, train_labels, val.reshape(len(val), -1) / 255, val_labels)
    assert top1 < 0.40


def test_colour_histograms_stay_below_40_percent(shapes: Path) -> None:
    def histograms(images: np.ndarray) -> np.ndarray:
        bins = (images // 32).astype(np.int64)
        codes = bins[..., 0] * 64 + bins[..., 1] * 8 + bins[..., 2]
        return np.stack([np.bincount(c.ravel(), minlength=512) for c in codes]) / codes[0].size

    train, train_labels = load(shapes / "train")
    val, val_labels = load(shapes / "val")
    assert linear_top1(histograms(train), train_labels, histograms(val), val_labels) < 0.40


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    def digest(root: Path) -> str:
        sha = hashlib.sha256()
        for path in sorted(p for p in root.rglob("*.jp*g")):
            sha.update(str(path.relative_to(root)).encode() + path.read_bytes())
        return sha.hexdigest()

    small = ("--classes", "3", "--per-class", "5", "--val-per-class", "2", "--size", "64x48")
    one = digest(synth(tmp_path / "one", *small, "--seed", "5"))
    assert digest(synth(tmp_path / "two", *small, "--seed", "5")) == one
    assert digest(synth(tmp_path / "three", *small, "--seed", "6")) != one
