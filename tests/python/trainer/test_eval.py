"""`imgtrain eval`, beside torchvision's own evaluation of the same weights on the same images."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
from imgtrain_ranks import IMGTRAIN, Trainer, make_images
from safetensors.torch import save_file
from torchvision.transforms import v2


def evaluate(*arguments: str | Path) -> dict[str, Any]:
    done = subprocess.run([IMGTRAIN, "eval", "--json", *arguments], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def refusal(*arguments: str | Path) -> str:
    done = subprocess.run([IMGTRAIN, "eval", *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    return done.stderr


IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def by_torchvision(model: torch.nn.Module, folder: Path, resize: int, size: int,
                   normalisation: tuple[list[float], list[float]] = IMAGENET) -> dict[str, float]:  # fmt: skip
    steps = [v2.Resize(resize), v2.CenterCrop(size), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
             v2.Normalize(*normalisation)]  # fmt: skip
    images, labels = zip(*torchvision.datasets.ImageFolder(folder, v2.Compose(steps)), strict=True)
    with torch.no_grad():
        logits = torch.cat([model(image.unsqueeze(0)) for image in images])
    target = torch.tensor(labels)
    best = logits.topk(min(5, logits.shape[1]), 1).indices.eq(target.unsqueeze(1))
    return {"images": len(labels), "top1": best[:, :1].sum().item() / len(labels),
            "top5": best.sum().item() / len(labels),
            "loss": torch.nn.functional.cross_entropy(logits, target).item()}  # fmt: skip


def some_resnet18(classes: int) -> torch.nn.Module:
    """Batch norm has statistics of something, or the logits are all alike."""
    torch.manual_seed(7)
    model: torch.nn.Module = torchvision.models.resnet18(num_classes=classes)
    with torch.no_grad():
        for _ in range(10):
            model(torch.randn(8, 3, 64, 64))
    return model.eval()


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
def test_the_figures_are_torchvisions(suffix: str, trainer: Trainer, tmp_path: Path) -> None:
    model = some_resnet18(4)
    file = tmp_path / f"weights.{suffix}"
    if suffix == "pth":
        torch.save(model.state_dict(), file)
    else:
        save_file(model.state_dict(), file)
    settings = ["--set", "data.val_size=64", "--set", "data.val_resize=72", "--set", "train.global_batch=10"]
    ours = evaluate(file, trainer.val, "--model", "resnet18", *settings)
    theirs = by_torchvision(model, trainer.val, 72, 64)
    assert ours["images"] == theirs["images"] == 27
    assert ours["loss"] == pytest.approx(theirs["loss"], abs=5e-3)
    assert ours["top1"] == pytest.approx(theirs["top1"], abs=1.01 / 27)
    assert ours["top5"] == 1


def test_top_1_and_top_5_of_more_classes_are_exactly_torchvisions(tmp_path: Path) -> None:
    val = make_images(tmp_path / "val", per_class=4, classes=12, size=64)
    model = some_resnet18(12)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    settings = ["data.val_size=64", "data.val_resize=64", "data.val_decode=exact", "train.global_batch=10"]
    ours = evaluate(tmp_path / "weights.safetensors", val, "--model", "resnet18",
                    *(word for setting in settings for word in ("--set", setting)))  # fmt: skip
    theirs = by_torchvision(model, val, 64, 64)
    assert ours["images"] == 48
    assert (ours["top1"], ours["top5"]) == pytest.approx((theirs["top1"], theirs["top5"]), abs=1e-7)
    assert 0 < ours["top1"] < ours["top5"] < 1


def test_a_checkpoint_says_what_it_is_of_and_gives_the_runs_own_figures(trainer: Trainer) -> None:
    run = trainer.run(train__max_steps=3, data__val=trainer.val)
    file = trainer.checkpoints / "g0/step3/model.safetensors"
    ours = evaluate(file, trainer.val, "--set", "data.val_size=32", "--set", "data.val_resize=36")
    validated = run.events("epoch")[-1]
    assert ours["loss"] == pytest.approx(validated.val_loss, rel=1e-4)
    assert ours["top1"] == pytest.approx(validated.val_top1)


@pytest.mark.parametrize(("name", "ours"), [("vit_small_patch16_224", "vit_small_patch16"),
                                            ("convnext_tiny", "convnext_tiny")])  # fmt: skip
def test_files_of_timm_with_a_mean_of_their_own(name: str, ours: str, trainer: Trainer, tmp_path: Path) -> None:
    """Both in the words of timm, whose ConvNeXt is torchvision's by other names."""
    torch.manual_seed(8)
    settings: dict[str, Any] = {"img_size": 64} if "vit" in name else {}
    model = timm.create_model(name, num_classes=4, **settings).eval()
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            if key.endswith((".gamma", "head.weight", "head.fc.weight")):
                tensor.normal_(0, 0.3)  # or no layer has an effect, and all logits are alike
    save_file(model.state_dict(), tmp_path / "timm.safetensors")
    mean, std = [0.5, 0.4, 0.3], [0.5, 0.25, 0.2]
    sizes = ["--set", "data.val_size=64", "--set", "data.val_resize=72"]
    found = evaluate(tmp_path / "timm.safetensors", trainer.val, "--model", ours, *sizes,
                     "--set", f"data.mean={mean}", "--set", f"data.std={std}")  # fmt: skip
    theirs = by_torchvision(model, trainer.val, 72, 64, (mean, std))
    assert found["loss"] == pytest.approx(theirs["loss"], rel=5e-3)
    assert found["loss"] != pytest.approx(by_torchvision(model, trainer.val, 72, 64)["loss"], rel=5e-3)


def test_weights_say_what_their_images_were_normalised_by(trainer: Trainer) -> None:
    run = trainer.run(train__max_steps=2, data__val=trainer.val, augment__erasing=0.5,
                      data__mean="[0.5, 0.4, 0.3]", data__std="[0.5, 0.5, 1]")  # fmt: skip
    file = trainer.checkpoints / "g0/step2/model.safetensors"
    sizes = ["--set", "data.val_size=32", "--set", "data.val_resize=36"]
    loss = run.events("epoch")[-1].val_loss
    assert evaluate(file, trainer.val, *sizes)["loss"] == pytest.approx(loss, rel=1e-4)
    others = ["--set", f"data.mean={IMAGENET[0]}", "--set", f"data.std={IMAGENET[1]}"]
    assert evaluate(file, trainer.val, *sizes, *others)["loss"] != pytest.approx(loss, rel=1e-4)
    trainer.checkpoints /= "tuned"
    tuned = trainer.run(train__max_steps=1, model__init_from=file)
    assert "its images were normalised by another data.mean" in tuned.output[0][1]


def test_what_cannot_be_evaluated_is_said(trainer: Trainer, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    torch.save(torchvision.models.resnet18(num_classes=9).state_dict(), file)
    assert "say it with --model NAME" in refusal(file, trainer.val)
    assert "its last layer, fc, is not for as many classes" in refusal(file, trainer.val, "--model", "resnet18")
    assert "allowed: resnet18" in refusal(file, trainer.val, "--model", "resnet9")
    assert "/nowhere" in refusal("/nowhere", trainer.val)
    unused = refusal(file, trainer.val, "--model", "resnet18", "--set", "train.epochs=3")
    assert "--set train.epochs=3: an evaluation has no use for train.epochs; it takes data.val_size, " in unused
