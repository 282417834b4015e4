"""Optimisers, averages, accumulation, phases and fine-tuning, through the whole trainer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from imgtrain_ranks import Trainer, files_at
from PIL import Image
from safetensors.torch import save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


@pytest.mark.long
def test_parts_of_a_step_add_up_to_the_whole(trainer: Trainer) -> None:
    settings: dict[str, Any] = {"train__freeze_batch_norm": True, "optimizer__lr": 0.005, "train__max_steps": 8}
    whole = trainer.run(**settings).losses()
    trainer.checkpoints /= "parts"
    losses = trainer.run(2, train__accumulate=3, **settings).losses()
    for step, loss in whole.items():
        assert losses[step] == pytest.approx(loss, abs=1e-5), step


@pytest.mark.long
def test_averaged_weights_follow_the_weights_and_are_what_is_validated(trainer: Trainer) -> None:
    run = trainer.run(
        train__max_steps=3, checkpoint__every_steps=1, ema__decay=0.5, data__val=trainer.val, checkpoint__keep=9
    )
    files = {step: files_at(trainer, step) for step in (1, 2, 3)}
    for key, average in files[1]["ema.safetensors"].items():
        expected = average
        if average.is_floating_point():
            for step in (2, 3):
                expected = expected + 0.5 * (files[step]["model.safetensors"][key] - expected)
        else:
            expected = files[3]["model.safetensors"][key]
        assert torch.allclose(files[3]["ema.safetensors"][key], expected, atol=1e-6), key
    # A run whose weights are the averaged ones is validated alike.
    averaged = run.events("epoch")[-1]
    init = trainer.tmp_path / "ema.safetensors"
    save_file(files[3]["ema.safetensors"], init)
    trainer.checkpoints = trainer.checkpoints.parent / "plain"
    plain = trainer.run(train__max_steps=1, model__init_from=init, optimizer__lr=0, data__val=trainer.val,
                        train__freeze_batch_norm=True).events("epoch")[-1]  # fmt: skip
    assert plain.val_loss == pytest.approx(averaged.val_loss, rel=1e-5)


def test_phases_have_rates_of_their_own(trainer: Trainer) -> None:
    settings: dict[str, Any] = {
        "phases": "[{until: 1, lr: 0.01, lr_end: 0.02}, {until: 2, global_batch: 24, lr: 0.005}]",
        "train__epochs": 2,
    }
    del trainer.settings["optimizer.lr"], trainer.settings["schedule.warmup_epochs"]
    steps = trainer.run(**settings).events("step")
    rates = {event.step: event.learning_rate for event in steps}
    assert rates[1] == pytest.approx(0.01)
    assert rates[5] == pytest.approx(0.018)
    assert rates[6] == rates[8] == pytest.approx(0.005)
    assert all(event.gradient_norm > 0 for event in steps)


def test_phases_have_images_of_their_own_size(trainer: Trainer) -> None:
    trainer.run(phases="[{until: 1, image_size: 32}, {until: 2, image_size: 48}]", train__epochs=2)
    board = EventAccumulator(str(trainer.checkpoints / "logs"), size_guidance={"images": 0})
    board.Reload()
    small, large = board.Images("train/samples")
    # Four in a row with a rim, four and three times as large.
    assert (small.width, large.width) == (4 * (4 * 32 + 6), 4 * (3 * 48 + 6))


@pytest.mark.parametrize("form", ["plain", "wrapped", "safetensors"])
def test_a_run_may_begin_with_weights_of_others(form: str, trainer: Trainer, tmp_path: Path) -> None:
    torch.manual_seed(5)
    theirs = torchvision.models.resnet18(num_classes=7).state_dict()
    file = tmp_path / "weights"
    if form == "safetensors":
        save_file(theirs, file)
    elif form == "wrapped":
        torch.save({"epoch": 3, "state_dict": {f"module.{key}": value for key, value in theirs.items()}}, file)
    else:
        torch.save(theirs, file)
    frozen = "[conv1, bn1, layer1, layer2, layer3]"
    run = trainer.run(2, train__max_steps=3, model__init_from=file, model__freeze=frozen,
                      train__freeze_batch_norm=True, optimizer__kind="adamw", optimizer__lr=0.001)  # fmt: skip
    assert "the last layer is new" in run.output[0][1]
    ours = files_at(trainer, 3)
    changed = {key for key, value in ours["model.safetensors"].items()
               if value.shape != theirs[key].shape or not torch.equal(value, theirs[key])}  # fmt: skip
    assert changed and all(key.startswith(("layer4", "fc")) for key in changed)
    assert {key.split(".")[0] for key in ours["optimizer.safetensors"]} == {"layer4", "fc"}


def test_weights_of_another_model_are_refused_by_name(trainer: Trainer, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    torch.save(torchvision.models.resnet34(num_classes=4).state_dict(), file)
    run = trainer.start(model__name="resnet50", model__init_from=file)
    assert run.wait() == [2]
    assert f"model.init_from: {file}: it" in run.output[0][1]
    # Every tensor of a smaller model is in it too.
    run = trainer.start(model__name="resnet18", model__init_from=file)
    assert run.wait() == [2]
    assert "which the model lacks" in run.output[0][1]
    file.write_bytes(b"PK\x03\x04 and nothing else")
    run = trainer.start(model__init_from=file)
    assert run.wait() == [2]
    assert "LibTorch can't read it" in run.output[0][1]
    run = trainer.start(model__freeze="[layer9]")
    assert run.wait() == [2]
    assert "resnet18 has no parameter whose name begins with 'layer9'" in run.output[0][1]


def images_of_one_colour(root: Path, counts: dict[str, int]) -> Path:
    """Whatever is cropped, flipped or mixed, all of them are the same picture."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (48, 48), (90, 140, 60)).save(root / name / f"{i}.jpg", quality=95)
    return root


def logits_of(model: torch.nn.Module, image: Path) -> torch.Tensor:
    pixels = torchvision.transforms.functional.to_tensor(Image.open(image))[:, :32, :32]
    normalise = torchvision.transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(normalise(pixels).unsqueeze(0))[0]
    return logits


def loss_by_hand(kind: str, smoothing: float, logits: torch.Tensor, label: int) -> float:
    """Of one image, summed over its classes."""
    classes = len(logits)
    targets = [smoothing / classes + (1 - smoothing) * (c == label) for c in range(classes)]
    z: list[float] = logits.double().tolist()
    if kind == "cross_entropy":
        total = math.log(sum(math.exp(value) for value in z))
        return sum(target * (total - value) for target, value in zip(targets, z, strict=True))
    return sum(math.log1p(math.exp(value)) - target * value for target, value in zip(targets, z, strict=True))


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("kind", "smoothing"), [("cross_entropy", 0), ("cross_entropy", 0.1), ("bce", 0.1)])
def test_the_loss_is_that_of_its_definition(
    kind: str, smoothing: float, mixed: bool, trainer: Trainer, tmp_path: Path
) -> None:
    train = images_of_one_colour(tmp_path / "plain", {"a": 10, "b": 6})
    torch.manual_seed(7)
    model = torchvision.models.resnet18(num_classes=2)
    with torch.no_grad():
        for _ in range(10):
            model(torch.randn(8, 3, 32, 32))  # batch norm has figures of something
        model.fc.bias.copy_(torch.tensor([0.6, -0.7]))  # the answers are not near each other
    init = tmp_path / "init.safetensors"
    save_file(model.state_dict(), init)
    logits = logits_of(model, train / "a" / "0.jpg")
    mixing: dict[str, Any] = {"augment__mixup": 0.4, "augment__cutmix": 1.0} if mixed else {}
    run = trainer.run(data__train=train, model__init_from=init, loss__kind=kind, loss__label_smoothing=smoothing,
                      optimizer__lr=0, train__freeze_batch_norm=True, train__max_steps=1, **mixing)  # fmt: skip
    (event,) = run.events("step")
    answer = int(logits.argmax())
    # What is mixed counts as right by its share of the class that is answered, the same for all here.
    share = event.top1
    assert (share == pytest.approx((10, 6)[answer] / 16)) == (not mixed), share
    right, wrong = (loss_by_hand(kind, smoothing, logits, label) for label in (answer, 1 - answer))
    assert abs(right - wrong) > 0.3, "the labels matter"
    assert event.loss == pytest.approx(share * right + (1 - share) * wrong, rel=1e-4)


def test_a_step_is_as_long_as_its_gradient_may_be(trainer: Trainer, tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = torchvision.models.resnet18(num_classes=4)
    init = tmp_path / "init.safetensors"
    save_file(model.state_dict(), init)

    def train(clip_norm: float) -> tuple[float, float]:
        """How far the weights move, which at a rate of 1 is by the gradient, and the gradient's norm as reported."""
        trainer.checkpoints = tmp_path / f"clip{clip_norm}"
        run = trainer.run(train__max_steps=1, model__init_from=init, optimizer__lr=1, optimizer__momentum=0,
                          optimizer__nesterov=False, optimizer__weight_decay=0, optimizer__clip_norm=clip_norm,
                          schedule__warmup_epochs=0)  # fmt: skip
        after = files_at(trainer, 1)["model.safetensors"]
        changes = [(after[name] - value.detach()).double() for name, value in model.named_parameters()]
        norm = math.sqrt(sum(float(change.square().sum()) for change in changes))
        return norm, run.events("step")[0].gradient_norm

    moved, reported = train(clip_norm=0)
    assert moved > 0.1
    assert reported == pytest.approx(moved, rel=1e-3)
    clipped, reported_before_that = train(clip_norm=0.01)
    assert clipped == pytest.approx(0.01, rel=1e-2)
    assert reported_before_that == pytest.approx(reported, rel=1e-6)
