"""Optimisers, averages, accumulation, phases and fine-tuning, through the whole trainer."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from imgtrain_ranks import STOP_WITH_CHECKPOINT_COMMAND, Trainer, send_command
from safetensors.torch import load_file, save_file

STEPS = 24

# Phases of 5, 9 and 3 steps an epoch, so that images and batches change at steps 10 and 19.
EVERYTHING: dict[str, Any] = {
    "phases": "[{until: 2, image_size: 32, global_batch: 16}, {until: 3, image_size: 48, global_batch: 8}, "
    "{until: 5, image_size: 40, global_batch: 24}]",
    "train__epochs": 5,
    "train__max_steps": STEPS,
    "train__accumulate": 2,
    "model__drop_path": 0.2,
    "augment__policy": "randaugment",
    "augment__mixup": 0.2,
    "augment__cutmix": 1.0,
    "augment__erasing": 0.2,
    "ema__decay": 0.9,
    "ema__every_steps": 2,
    "optimizer__clip_norm": 1.0,
}


def files_at(trainer: Trainer, step: int) -> dict[str, dict[str, torch.Tensor]]:
    """The tensors of the newest checkpoint of this step."""
    folder = sorted(trainer.checkpoints.glob(f"g*/step{step}"))[-1]
    return {path.name: load_file(path) for path in folder.glob("*.safetensors")}


def assert_identical(ours: dict[str, dict[str, torch.Tensor]], theirs: dict[str, dict[str, torch.Tensor]]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensors in ours.items():
        assert tensors.keys() == theirs[name].keys()
        for key, tensor in tensors.items():
            assert torch.equal(tensor, theirs[name][key]), f"{name}: {key}"


def cut_at(trainer: Trainer, step: int, ranks: int, settings: dict[str, Any], *, politely: bool) -> dict[int, float]:
    """Starts, and ends the run once it has done `step` steps: by the stop command or by SIGKILL."""
    run = trainer.start(ranks, **settings)
    run.wait_for_step(step)
    if politely:
        # It may have ended meanwhile.
        with contextlib.suppress(OSError, AssertionError):
            send_command(run.folder / "control.0", STOP_WITH_CHECKPOINT_COMMAND)
    else:
        for rank in run.ranks:
            rank.kill()
    run.wait()
    return run.losses()


def check_bit_identical(trainer: Trainer, ranks: int, kind: str, cuts: list[int]) -> None:
    learning = {"optimizer__kind": kind, "optimizer__lr": 0.002 if kind == "adamw" else 0.05}
    settings = EVERYTHING | learning | {"checkpoint__every_steps": 2}
    losses = trainer.run(ranks, **settings).losses()
    whole = files_at(trainer, STEPS)
    assert set(whole) == {"model.safetensors", "optimizer.safetensors", "ema.safetensors"}
    trainer.checkpoints = trainer.checkpoints.parent / "cut"
    seen: dict[int, float] = {}
    for number, step in enumerate(cuts):
        seen |= cut_at(trainer, step, ranks, settings, politely=number % 2 == 0)
    seen |= trainer.run(ranks, **settings).losses()
    assert seen == losses
    assert_identical(whole, files_at(trainer, STEPS))


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "kind"), [(1, "adamw"), (2, "adamw"), (1, "lars")])
def test_a_run_that_was_cut_ends_with_the_same_bits(ranks: int, kind: str, trainer: Trainer) -> None:
    check_bit_identical(trainer, ranks, kind, [11])


@pytest.mark.long
def test_twenty_cuts_leave_no_trace(trainer: Trainer) -> None:
    # Those at a step that the last start got beyond cost only a start.
    cuts = sorted(random.Random(1).choices(range(1, STEPS - 1), k=20))
    check_bit_identical(trainer, 2, "sgd", cuts)


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


def test_binary_cross_entropy_is_summed_over_the_classes(trainer: Trainer) -> None:
    run = trainer.run(train__max_steps=1, optimizer__lr=0, loss__kind="bce", loss__label_smoothing=0.1)
    # Logits near 0 cost ln 2 for each of the four classes.
    assert run.losses()[1] == pytest.approx(4 * 0.693, abs=1.2)
