"""What a run does when training goes wrong, or gets no better."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from cuts import Cuts
from imgtrain_ranks import Run, Trainer
from safetensors.torch import load_file, save_file

STEPS_PER_EPOCH = 5
EXPLOSIVE = 1e6


def notes(run: Run) -> str:
    return run.output[0][1]


def newest(trainer: Trainer) -> Path:
    return max(trainer.checkpoints.glob("g*/step*"), key=lambda path: int(path.name[4:]))


def with_an_explosion(trainer: Trainer, **guard: Any) -> dict[str, Any]:
    """Three epochs, of which the second has a learning rate that no weights survive."""
    del trainer.settings["optimizer.lr"], trainer.settings["schedule.warmup_epochs"]
    return {
        "phases": f"[{{until: 1, lr: 0.01}}, {{until: 2, lr: {EXPLOSIVE:.0f}}}, {{until: 3, lr: 0.01}}]",
        "train__epochs": 3,
        "checkpoint__every_steps": 1,
        "checkpoint__keep": 99,
        "guard__loss_factor": 3,
    } | {f"guard__{key}": value for key, value in guard.items()}


@pytest.mark.long
def test_a_rollback_leaves_out_what_went_wrong(trainer: Trainer) -> None:
    settings = with_an_explosion(trainer, action="rollback", every_steps=1)
    run = trainer.run(2, **settings)
    assert "guard: the loss is" in notes(run) and "and training goes on with step" in notes(run)
    losses = run.losses()
    assert max(losses) == 3 * STEPS_PER_EPOCH
    assert any(loss > 10 for loss in losses.values())
    assert all(losses[step] < 10 for step in losses if step > 2 * STEPS_PER_EPOCH + 1)
    for step in (2 * STEPS_PER_EPOCH + 1, 3 * STEPS_PER_EPOCH):
        weights = load_file(newest(trainer).with_name(f"step{step}") / "model.safetensors")
        assert all(tensor.isfinite().all() for tensor in weights.values())
    state = json.loads((newest(trainer) / "state.json").read_text())
    assert state["guard"]["times_used"] >= 1


@pytest.mark.long
def test_a_rollback_is_the_same_when_the_run_is_cut(trainer: Trainer) -> None:
    settings = with_an_explosion(trainer, action="rollback", every_steps=2) | {"checkpoint__every_steps": 3}
    settings["guard__max_times"] = 20
    trainer.run(**settings)
    whole = load_file(newest(trainer) / "model.safetensors")
    trainer.checkpoints = trainer.checkpoints.parent / "cut"
    cuts = Cuts(trainer, 1, settings)
    cuts.by_command(4)
    cuts.by_sigkill(7)
    cuts.by_command(11)
    trainer.run(**settings)
    cut = load_file(newest(trainer) / "model.safetensors")
    assert all(torch.equal(tensor, cut[name]) for name, tensor in whole.items())


@pytest.mark.long
def test_a_rollback_goes_to_a_checkpoint_of_other_settings(trainer: Trainer) -> None:
    """One that the file asked for when it was written, though it would not now."""
    settings = with_an_explosion(trainer, action="rollback", every_steps=1)
    settings |= {"checkpoint__every_steps": 3, "checkpoint__every_epochs": 0, "checkpoint__keep": 2}
    trainer.run(**settings, train__max_steps=3)
    run = trainer.run(**settings | {"checkpoint__every_steps": 7})
    assert "/g0/step3 again, and training goes on with step" in notes(run)


@pytest.mark.long
def test_a_run_that_goes_wrong_again_and_again_ends(trainer: Trainer) -> None:
    run = trainer.start(**with_an_explosion(trainer, action="rollback", every_steps=1, max_times=1))
    assert run.wait() == [2]
    assert "and it went back 1 times (guard.max_times) before" in notes(run)


def test_without_a_checkpoint_there_is_nothing_to_go_back_to(trainer: Trainer) -> None:
    settings: dict[str, Any] = {"optimizer__lr": EXPLOSIVE, "schedule__warmup_epochs": 0, "guard__loss_factor": 3}
    run = trainer.start(guard__action="rollback", guard__every_steps=1, **settings)
    assert run.wait() == [2]
    assert "before there was a good checkpoint to go back to" in notes(run)


@pytest.mark.long
def test_a_loss_far_above_its_mean_ends_the_run(trainer: Trainer) -> None:
    settings = with_an_explosion(trainer, loss_factor=1.5, every_steps=1)
    settings["phases"] = settings["phases"].replace("1000000", "2")
    run = trainer.start(**settings)
    assert run.wait() == [2]
    assert "training diverged: the loss is" in notes(run) and "its running mean was" in notes(run)
    assert load_file(newest(trainer) / "model.safetensors")["fc.bias"].isfinite().all()


def test_steps_without_numbers_change_nothing(trainer: Trainer, tmp_path: Path) -> None:
    torch.manual_seed(1)
    weights = torchvision.models.resnet18(num_classes=4).state_dict()
    weights["fc.weight"] *= 1e38  # logits that are infinite
    save_file(weights, tmp_path / "bad.safetensors")
    settings: dict[str, Any] = {
        "model__init_from": tmp_path / "bad.safetensors",
        "guard__action": "skip",
        "ema__decay": 0.9,
    }
    run = trainer.run(2, **settings, train__max_steps=3, train__log_every_steps=1)
    # Neither loss nor accuracy is known, but that its images went through.
    assert [(math.isnan(step.loss), math.isnan(step.top1)) for step in run.events("step")] == [(True, True)] * 3
    assert all(step.images_per_second > step.rank_images_per_second > 0 for step in run.events("step"))
    assert "guard: 3 steps up to step 3 left out" in notes(run)
    for name in ("model", "ema"):
        after = load_file(newest(trainer) / f"{name}.safetensors")
        assert all(torch.equal(tensor, weights[key]) for key, tensor in after.items())
    assert all(not tensor.any() for tensor in load_file(newest(trainer) / "optimizer.safetensors").values())
    run = trainer.start(**settings, guard__max_times=4)  # three are in the checkpoint
    assert run.wait() == [2]
    assert "5 steps had gradients that are no finite numbers, more than guard.max_times, 4" in notes(run)


@pytest.mark.long
def test_a_healthy_run_is_the_same_under_guard(trainer: Trainer) -> None:
    plain = trainer.run(train__max_steps=7).losses()
    for action in ("skip", "rollback"):
        trainer.checkpoints = trainer.checkpoints.parent / action
        assert trainer.run(train__max_steps=7, guard__action=action, guard__every_steps=2).losses() == plain


def test_a_run_that_gets_no_better_ends_as_finished(trainer: Trainer) -> None:
    settings: dict[str, Any] = {
        "data__val": trainer.val,
        "optimizer__lr": 0,
        "train__freeze_batch_norm": True,
        "train__epochs": 9,
        "early_stop__patience": 2,
        "checkpoint__every_epochs": 2,
    }
    run = trainer.run(2, **settings)
    assert [event.epoch for event in run.events("epoch")] == [1, 2, 3]
    assert run.events("finished")[0].step == 3 * STEPS_PER_EPOCH
    best = run.events("epoch")[0].val_top1
    assert (
        f"early_stop: the last 2 validation passes were no better than that of step 5, whose top1 was {best:.4g}; "
        "the run ends after step 15 of 45"
    ) in notes(run)
    assert newest(trainer).name == f"step{3 * STEPS_PER_EPOCH}"
    # It has ended, whoever starts it once more.
    again = trainer.run(2, **settings)
    assert not again.events("step") and again.events("finished")[0].step == 3 * STEPS_PER_EPOCH


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_settings_that_a_checkpoint_can_not_go_on_with_are_named(ranks: int, trainer: Trainer) -> None:
    trainer.run(train__max_steps=2)
    run = trainer.start(ranks, optimizer__kind="lars")
    assert 2 in run.wait()
    assert "was trained with optimizer.kind: sgd, but the job has lars" in notes(run)
    run = trainer.start(ranks, model__freeze="[conv1]")
    assert 2 in run.wait()
    assert "was trained with other settings of model.freeze or optimizer" in notes(run)


def test_a_run_that_goes_on_does_not_need_the_weights_that_it_began_with(trainer: Trainer, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    torch.save(torchvision.models.resnet18(num_classes=4).state_dict(), file)
    trainer.run(train__max_steps=2, model__init_from=file)
    file.unlink()
    assert max(trainer.run(train__max_steps=4, model__init_from=file).losses()) == 4
