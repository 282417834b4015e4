"""Training from shards: what convert writes is what other programs read, and a run from it is like any other."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from imgtrain_ranks import BIN, Trainer


def convert(source: Path, out: Path, *options: str) -> None:
    subprocess.run([BIN / "imgcli", "dataset", "convert", *options, source, out], check=True, capture_output=True)


def test_python_reads_every_image_with_its_label(trainer: Trainer, images: tuple[Path, Path], tmp_path: Path) -> None:
    source, _ = images
    out = tmp_path / "shards"
    convert(source, out, "--shards", "5")
    found: dict[str, bytes] = {}
    for shard in sorted(out.glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None
                found[member.name] = content.read()
    classes = sorted(p.name for p in source.iterdir())
    wanted: dict[str, bytes] = {}
    for image in source.glob("*/*.jpg"):
        key = f"{image.parent.name}/{image.stem}"
        wanted[f"{key}.jpg"] = image.read_bytes()
        wanted[f"{key}.cls"] = str(classes.index(image.parent.name)).encode()
    assert found == wanted


@pytest.mark.long
def test_ranks_resuming_and_indexes_make_no_difference(
    trainer: Trainer, images: tuple[Path, Path], tmp_path: Path
) -> None:
    shards = tmp_path / "shards"
    convert(images[0], shards, "--shards", "3")
    settings: dict[str, Any] = {
        "data__train": shards,
        "data__val": images[1],
        "train__max_steps": 8,
        "train__freeze_batch_norm": True,
        "optimizer__lr": 0.005,  # at 0.02 a difference of rounding grows tenfold with each step
    }
    one = trainer.run(1, **settings).losses()
    assert len(one) == 8

    for index in shards.glob("*.idx"):
        index.unlink()
    trainer.checkpoints /= "two"
    two = trainer.run(2, **settings).losses()
    assert two == pytest.approx(one, abs=1e-3)

    trainer.checkpoints /= "halves"
    first = trainer.run(1, **settings | {"train__max_steps": 3}).losses()
    rest = trainer.run(2, **settings)
    assert rest.events("started")[0].start_step == 3
    assert first | rest.losses() == pytest.approx(one, abs=1e-3)


def test_a_pattern_of_shards_trains_too(trainer: Trainer, images: tuple[Path, Path], tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    convert(images[0], shards, "--shards", "2")
    run = trainer.run(data__train=f'"{shards}/train-{{000000..000001}}.tar"', train__max_steps=2)
    assert run.events("started")[0].train_images == 72
