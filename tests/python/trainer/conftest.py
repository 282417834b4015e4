"""What the trainer's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from imgtrain_ranks import Trainer, make_images


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """72 training images and 27 for validation: neither is a multiple of anything used here."""
    root = tmp_path_factory.mktemp("images")
    train = make_images(root / "train", per_class=18)
    val = make_images(root / "val", per_class=7, seed=2)
    (val / "class0" / "000.jpg").unlink()
    return train, val


@pytest.fixture
def trainer(tmp_path: Path, images: tuple[Path, Path]) -> Iterator[Trainer]:
    trainer = Trainer(tmp_path, *images)
    yield trainer
    trainer.clean_up()
