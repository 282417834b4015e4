"""The models are torchvision's, to the weight."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
from imgtrain_ranks import BIN, REPO, Trainer
from safetensors.torch import load_file, save_file

# Each model, with options: what it is called elsewhere, and the options there.
TORCHVISION = [
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "wide_resnet50_2",
    "convnext_tiny",
]
TIMM: dict[str, tuple[str, dict[str, Any]]] = {
    "vit_small_patch16": ("vit_small_patch16_224", {}),
    "resnet18+deep_stem+average_shortcut": ("resnet18d", {"zero_init_last": False}),
    "resnet50+deep_stem+average_shortcut": ("resnet50d", {"zero_init_last": False}),
}
LABELS = torch.tensor([3, 1])
# The same code as others.
LARGE = {"resnet34", "resnet101", "resnet152", "wide_resnet50_2"}


def each(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.long) if name in LARGE else name for name in names]


def peer_of(name: str, classes: int) -> torch.nn.Module:
    model: torch.nn.Module
    if name in TIMM:
        other, settings = TIMM[name]
        model = timm.create_model(other, num_classes=classes, **settings)
        return model
    base, *options = name.split("+")
    known = {option: True for option in options if option == "zero_init_residual"}
    model = getattr(torchvision.models, base)(num_classes=classes, **known)
    if "blurpool" in options:
        blur_strides(model)
    return model


class Blurred(torch.nn.Conv2d):
    """A convolution whose input is smoothed by [1 2 1] both ways."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        row = torch.tensor([1.0, 2.0, 1.0]) / 4
        kernel = torch.outer(row, row).expand(self.in_channels, 1, 3, 3)
        return super().forward(torch.nn.functional.conv2d(x, kernel, padding=1, groups=self.in_channels))


def blur_strides(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d) and module.stride != (1, 1) and module.in_channels >= 16:
            module.__class__ = Blurred


def run_model(
    tmp_path: Path, model: str, classes: int, weights: str | Path, *, learn: bool = False
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """What model_logits says of two images, and the images."""
    size = 224 if model.startswith("vit") else 96
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(5))
    save_file({"images": images} | ({"labels": LABELS} if learn else {}), tmp_path / "images.safetensors")
    out = tmp_path / "out.safetensors"
    subprocess.run(
        [BIN / "model_logits", model, str(classes), weights, tmp_path / "images.safetensors", out],
        check=True,
    )
    return load_file(out), images


def test_a_family_is_one_file_which_the_table_alone_names() -> None:
    families = set(re.findall(r"^IMGD_MODEL\(\w+, (\w+)\)", (REPO / "common/models.def").read_text(), re.MULTILINE))
    texts = {path.name: path.read_text() for path in (REPO / "trainer/model").glob("*.cc")}
    build = (REPO / "trainer/CMakeLists.txt").read_text()
    for family in families:
        (file,) = (name for name, text in texts.items() if f" Make{family}(" in text)
        assert file not in build
    assert len(families) >= 3


@pytest.mark.parametrize("name", each(TORCHVISION))
def test_a_seed_gives_torchvisions_initial_weights_and_logits(name: str, tmp_path: Path) -> None:
    ours, images = run_model(tmp_path, name, 1000, "42")
    logits = ours.pop("logits")
    torch.manual_seed(42)
    model = peer_of(name, 1000).eval()
    theirs = model.state_dict()
    assert names_in(tmp_path / "out.safetensors") == ["logits", *theirs]
    for key, value in theirs.items():
        assert torch.equal(ours[key], value), key
    with torch.no_grad():
        expected = model(images)
    # Deep residual networks begin with logits of tens of thousands, whose rounding is as much larger.
    assert torch.allclose(expected, logits, atol=1e-4 * max(1.0, expected.abs().max().item()))


@pytest.mark.parametrize("name", list(TIMM))
def test_timms_models_have_its_names_and_its_spread_of_initial_weights(name: str, tmp_path: Path) -> None:
    ours, _ = run_model(tmp_path, name, 1000, "42")
    ours.pop("logits")
    theirs = peer_of(name, 1000).state_dict()
    assert names_in(tmp_path / "out.safetensors")[1:] == list(theirs)
    for key, value in theirs.items():
        assert ours[key].shape == value.shape, key
        if value.numel() > 4000:
            assert ours[key].std().item() == pytest.approx(value.std().item(), rel=0.05), key
            noise = value.std().item() / value.numel() ** 0.5
            assert ours[key].mean().item() == pytest.approx(value.mean().item(), abs=8 * noise), key


@pytest.mark.parametrize("name", each([*TORCHVISION, *TIMM, "resnet50+blurpool", "resnet18+zero_init_residual"]))
def test_logits_and_gradients_of_a_step_are_the_peers(name: str, tmp_path: Path) -> None:
    torch.manual_seed(11)
    model = peer_of(name, 7)
    # Something to tell apart from where it began.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() in (1, 3):
                parameter.add_(0.1 * torch.randn_like(parameter))
    weights = tmp_path / "model.safetensors"
    save_file(model.state_dict(), weights)
    ours, images = run_model(tmp_path, name, 7, weights, learn=True)
    model = model.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    torch.manual_seed(9)
    logits = model(images.contiguous(memory_format=torch.channels_last))
    torch.nn.functional.cross_entropy(logits, LABELS).backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(logits, ours["logits"], atol=1e-4)
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None
        off = (parameter.grad - ours[f"gradient/{key}"]).norm() / parameter.grad.norm().clamp(min=1e-6)
        assert off < 1e-3, key


def names_in(path: Path) -> list[str]:
    """In the file's order, which load_file() need not keep."""
    with path.open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return [name for name in header if name != "__metadata__"]


@pytest.mark.parametrize("name", ["resnet18", pytest.param("resnet50", marks=pytest.mark.long)])
def test_a_checkpoint_loads_strictly_and_gives_the_same_logits(name: str, trainer: Trainer, tmp_path: Path) -> None:
    trainer.run(model__name=name, train__max_steps=2, data__image_size=64)
    file = trainer.checkpoints / "g0" / "step2" / "model.safetensors"
    state = load_file(file)
    model = getattr(torchvision.models, name)(num_classes=4)
    model.load_state_dict(state, strict=True)
    assert state["bn1.num_batches_tracked"].dtype == torch.int64
    assert state["bn1.num_batches_tracked"].item() == 2
    ours, images = run_model(tmp_path, name, 4, file)
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
