"""A run that was cut, in any way and anywhere, ends with the bits of one that was not."""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest
import torch
from cuts import PARTS, Cuts
from imgtrain_ranks import Trainer, files_at

STEPS = 24
STEPS_OF_MANY_CUTS = 40

# Phases of 5, 9 and 3 steps an epoch, so that images and batches change at steps 10 and 19.
EVERYTHING: dict[str, Any] = {
    "phases": "[{until: 2, image_size: 32, global_batch: 16}, {until: 3, image_size: 48, global_batch: 8}, "
    "{until: 10, image_size: 40, global_batch: 24}]",
    "train__epochs": 10,
    "train__accumulate": 2,
    "model__drop_path": 0.2,
    "augment__policy": "randaugment",
    "augment__mixup": 0.2,
    "augment__cutmix": 1.0,
    "augment__erasing": 0.2,
    "ema__decay": 0.9,
    "ema__every_steps": 2,
    "optimizer__clip_norm": 1.0,
    "checkpoint__every_epochs": 0,
    "checkpoint__every_steps": 2,
    "report__json_lines": True,
    "report__tensorboard": False,
}


def assert_identical(ours: dict[str, dict[str, torch.Tensor]], theirs: dict[str, dict[str, torch.Tensor]]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensors in ours.items():
        assert tensors.keys() == theirs[name].keys()
        for key, tensor in tensors.items():
            assert torch.equal(tensor, theirs[name][key]), f"{name}: {key}"


def settings_of(kind: str, steps: int) -> dict[str, Any]:
    rate = 0.002 if kind == "adamw" else 0.05
    return EVERYTHING | {"optimizer__kind": kind, "optimizer__lr": rate, "train__max_steps": steps}


class Whole:
    """A run that is not cut, to compare with."""

    def __init__(self, trainer: Trainer, ranks: int, settings: dict[str, Any]) -> None:
        self.steps = settings["train__max_steps"]
        self.losses = trainer.run(ranks, **settings).losses()
        self.files = files_at(trainer, self.steps)
        assert set(self.files) == {"model.safetensors", "optimizer.safetensors", "ema.safetensors"}
        trainer.checkpoints = trainer.checkpoints.parent / "cut"

    def compare(self, cuts: Cuts) -> None:
        cuts.losses |= cuts.start().finish().losses()
        assert cuts.losses == self.losses
        assert_identical(self.files, files_at(cuts.trainer, self.steps))


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "kind"), [(1, "adamw"), (2, "adamw"), (1, "lars")])
def test_a_run_that_was_cut_ends_with_the_same_bits(ranks: int, kind: str, trainer: Trainer) -> None:
    settings = settings_of(kind, STEPS)
    whole = Whole(trainer, ranks, settings)
    cuts = Cuts(trainer, ranks, settings)
    cuts.by_command(11)
    whole.compare(cuts)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2])
def test_twenty_cuts_leave_no_trace(ranks: int, trainer: Trainer) -> None:
    settings = settings_of("sgd", STEPS_OF_MANY_CUTS)
    whole = Whole(trainer, ranks, settings)
    cuts = Cuts(trainer, ranks, settings)
    # Those at a step that the last start got beyond come after its first one.
    steps = sorted(random.Random(ranks).choices(range(1, STEPS_OF_MANY_CUTS - 8), k=20))
    ways = [cuts.by_command, cuts.by_sigkill, cuts.by_sigterm]
    for number, step in enumerate(steps):
        ways[number % len(ways)](step)
    assert cuts.codes.count(11) >= 10 and cuts.codes.count(-signal.SIGKILL) >= 5, "some may come too late, not most"
    whole.compare(cuts)


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "parts"), [(1, PARTS), (2, ["optimizer.safetensors", "manifest.json"])])
def test_cuts_while_a_checkpoint_is_being_written_leave_no_trace(
    ranks: int, parts: list[str], trainer: Trainer
) -> None:
    settings = settings_of("sgd", STEPS)
    whole = Whole(trainer, ranks, settings)
    cuts = Cuts(trainer, ranks, settings)
    for number, part in enumerate(parts):
        cuts.in_mid_write(part)
        cuts.by_sigkill(3 * number + 3)
    assert cuts.codes.count(-signal.SIGKILL) >= len(parts)
    whole.compare(cuts)
