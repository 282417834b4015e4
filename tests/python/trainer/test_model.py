"""The models are torchvision's, to the weight."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path

import pytest
import torch
import torchvision
from imgtrain_ranks import BIN, Trainer
from safetensors.torch import load_file, save_file

MODELS = ["resnet18", "resnet34", "resnet50"]


def logits_of(
    tmp_path: Path, model: str, classes: int, weights: str | Path
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    images = torch.randn(2, 3, 96, 96, generator=torch.Generator().manual_seed(5))
    save_file({"images": images}, tmp_path / "images.safetensors")
    out = tmp_path / "out.safetensors"
    subprocess.run(
        [
            BIN / "model_logits",
            model,
            str(classes),
            weights,
            tmp_path / "images.safetensors",
            out,
        ],
        check=True,
    )
    return load_file(out), images


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_gives_torchvisions_initial_weights_and_logits(name: str, tmp_path: Path) -> None:
    ours, images = logits_of(tmp_path, name, 1000, "42")
    logits = ours.pop("logits")
    torch.manual_seed(42)
    model = getattr(torchvision.models, name)().eval()
    theirs = model.state_dict()
    assert names_in(tmp_path / "out.safetensors") == ["logits", *theirs]
    for key, value in theirs.items():
        assert torch.equal(ours[key], value), key
    with torch.no_grad():
        assert torch.allclose(model(images), logits, atol=1e-4)


def names_in(path: Path) -> list[str]:
    """In the file's order, which load_file() need not keep."""
    with path.open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return [name for name in header if name != "__metadata__"]


@pytest.mark.parametrize("name", MODELS)
def test_a_checkpoint_loads_strictly_and_gives_the_same_logits(name: str, trainer: Trainer, tmp_path: Path) -> None:
    trainer.run(model__name=name, train__max_steps=2, data__image_size=64)
    file = trainer.checkpoints / "g0" / "step2" / "model.safetensors"
    state = load_file(file)
    model = getattr(torchvision.models, name)(num_classes=4)
    model.load_state_dict(state, strict=True)
    assert state["bn1.num_batches_tracked"].dtype == torch.int64
    assert state["bn1.num_batches_tracked"].item() == 2
    ours, images = logits_of(tmp_path, name, 4, file)
    with torch.no_grad():
        assert torch.allclose(model.eval()(images), ours["logits"], atol=1e-4)


def test_training_follows_pytorchs_own_sgd(trainer: Trainer, tmp_path: Path) -> None:
    """Momentum and weights of a step in Python, from one checkpoint to the next, are the trainer's."""
    trainer.run(train__max_steps=1)
    trainer.run(train__max_steps=2, checkpoint__every_steps=1)
    one, two = (trainer.checkpoints / "g0" / f"step{n}" for n in (1, 2))
    before, after = (
        load_file(one / "model.safetensors"),
        load_file(two / "model.safetensors"),
    )
    buffer = load_file(two / "optimizer.safetensors")
    old = load_file(one / "optimizer.safetensors")
    # steps_per_epoch is 5 and the warm-up one epoch long: step 1 has 2/6 of the full rate.
    rate = 0.05 * 2 / 6
    for name in ("fc.weight", "bn1.weight", "layer1.0.conv1.weight"):
        new_buffer = buffer[f"{name}.momentum"]
        gradient = new_buffer - 0.9 * old[f"{name}.momentum"]  # decay included
        expected = before[name] - rate * (gradient + 0.9 * new_buffer)
        assert torch.allclose(after[name], expected, atol=1e-6), name
