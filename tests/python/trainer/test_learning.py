"""Optimisers, averages, accumulation, phases and fine-tuning, through the whole trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from imgtrain_ranks import Trainer, files_at
from safetensors.torch import save_file


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
