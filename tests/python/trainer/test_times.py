"""Where the time of steps goes, and which rank is slow."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from imgtrain_ranks import Event, Trainer, make_images

PARTS = ("input_seconds", "forward_seconds", "backward_seconds", "communication_seconds", "optimizer_seconds")


def own(event: Event) -> float:
    return float(sum(getattr(event.times, part) for part in PARTS if part != "communication_seconds"))


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2])
def test_the_parts_of_the_steps_add_up_to_their_time(ranks: int, trainer: Trainer) -> None:
    # An epoch is five steps, and a report is made after four: the mean over a report's steps counts.
    run = trainer.run(ranks, train__log_every_steps=4, train__max_steps=16, data__image_size=64)
    for rank in range(ranks):
        events = run.events("step", rank)
        assert sum(e.times.steps for e in events) == 16
        interval = sum(e.loader.interval_seconds for e in events)
        parts = {part: sum(getattr(e.times, part) for e in events) for part in PARTS}
        assert 0.8 * interval <= sum(parts.values()) <= 1.001 * interval
        assert all(parts[f"{name}_seconds"] > 0 for name in ("forward", "backward", "optimizer"))
        # It is the most expensive of all; that it takes more than nothing says that the marks are in their places.
        assert parts["backward_seconds"] > parts["optimizer_seconds"]
        last = events[-1]
        if ranks == 1:
            assert parts["communication_seconds"] < 0.05 * interval
            assert (last.ranks, last.times.all_reduce_seconds) == (0, 0)
        else:
            assert last.times.all_reduce_seconds > 0
            assert 0 <= last.times.all_reduce_hidden_ratio <= 1
            assert last.ranks.ranks == 2
            assert last.ranks.own_least_seconds <= last.ranks.own_mean_seconds <= last.ranks.own_most_seconds
            assert vars(last.ranks) == vars(run.events("step", 0)[-1].ranks), "all ranks say the same"


def test_images_are_read_and_decoded_while_a_step_is_computed(trainer: Trainer, tmp_path: Path) -> None:
    """By one thread, which has less to do than the one that computes."""
    large = make_images(tmp_path / "large", per_class=12, size=400)
    run = trainer.run(data__train=large, data__image_size=96, train__global_batch=8, train__max_steps=6,
                      checkpoint__every_epochs=0)  # fmt: skip
    loaders = [event.loader for event in run.events("step")]
    work = sum(loader.read_seconds + loader.decode_seconds + loader.augment_seconds for loader in loaders)
    a_batchs_work = 8 * work / sum(loader.images for loader in loaders)
    # The first step has nothing to be behind. Were nothing read ahead, each would wait for all of its batch, however
    # busy the machine is with something else.
    waited = min(loader.wait_seconds for loader in loaders[1:])
    assert waited < 0.5 * a_batchs_work, (waited, a_batchs_work)


@pytest.mark.long
def test_what_is_learnt_does_not_depend_on_the_size_of_buckets(trainer: Trainer) -> None:
    losses = {}
    for mebibytes in (1, 4096):
        trainer.checkpoints = trainer.tmp_path / f"buckets{mebibytes}"
        run = trainer.run(2, dist__bucket_mb=mebibytes, train__max_steps=6, checkpoint__every_epochs=0)
        losses[mebibytes] = [event.loss for event in run.events("step")]
        hidden = [event.times.all_reduce_hidden_ratio for event in run.events("step")]
        assert all(0 <= ratio <= 1 for ratio in hidden)
        if mebibytes == 1:  # the last layers' gradients are on their way before the first layers' are computed
            assert all(ratio > 0 for ratio in hidden), hidden
    # The sum of two ranks' gradients has no order.
    assert losses[1] == losses[4096]


@pytest.mark.long
def test_a_rank_that_is_slow_is_named_and_the_others_wait_for_it(trainer: Trainer) -> None:
    run = trainer.start(2, train__epochs=1000, checkpoint__every_epochs=0)
    run.wait_for_step(3)
    first = len(run.events("step", 0))
    # Stopped five sixths of the time: its computing takes about six times as long, and it is seldom early.
    deadline = time.monotonic() + 90
    while (count := min(len(run.events("step", rank)) for rank in range(2)) - first) < 6:
        assert time.monotonic() < deadline, run.events("step")
        run.ranks[1].send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        run.ranks[1].send_signal(signal.SIGCONT)
        time.sleep(0.01)
    # The first of them may have begun before.
    events = [run.events("step", rank)[first + 1 : first + count] for rank in range(2)]
    fast, slow = events
    assert sum(own(e) for e in slow) > 2 * sum(own(e) for e in fast)
    assert sum(e.times.communication_seconds for e in fast) > 2 * sum(e.times.communication_seconds for e in slow)
    # Of steps that were slow at all; single ones may have passed between two stops.
    named = [e.ranks for e in fast if e.ranks.own_most_seconds > 1.5 * e.ranks.own_least_seconds]
    assert sum(ranks.slowest_rank == 1 for ranks in named) > 0.8 * len(named) > 0
