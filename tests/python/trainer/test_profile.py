"""Profiles of some steps, by the command line and by the control socket."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from imgtrain_ranks import IMGTRAIN, Trainer, send_command

PROFILE_THREE_STEPS = b"\x42\x02\x08\x03"


# What asks a device for a value, and waits until it is computed.
SYNCHRONISING = {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero", "aten::equal"}
SCOPES = [f"imgtrain: {part}" for part in ("forward", "backward and all-reduce", "optimizer")]


def events_in(trace: Path) -> list[dict[str, Any]]:
    """What takes time in a Chrome trace."""
    events = json.loads(trace.read_text())["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def names_in(trace: Path) -> Counter[str]:
    """How often each name begins in a Chrome trace."""
    return Counter(event["name"] for event in events_in(trace))


def within(scope: dict[str, Any], events: list[dict[str, Any]]) -> set[str]:
    """Names of what any thread does during one of them."""
    end = scope["ts"] + scope["dur"]
    return {event["name"] for event in events if scope["ts"] <= event["ts"] < end}


def test_a_run_by_hand_profiles_the_steps_that_it_is_told(trainer: Trainer) -> None:
    job = trainer.job_file(train__max_steps=6, checkpoint__dir=trainer.checkpoints)
    trace = trainer.tmp_path / "folder" / "trace.json"
    command: list[str | Path] = [IMGTRAIN, job, "--profile", trace, "--profile-steps", "2:4"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    names = names_in(trace)
    for scope in ("input", "forward", "backward and all-reduce", "optimizer"):
        assert names[f"imgtrain: {scope}"] == 2, scope
    # resnet18 has twenty convolutions.
    assert names["aten::conv2d"] == 2 * 20
    table = (trace.parent / "trace.json.txt").read_text()
    assert table.startswith("2 steps from step 3 on")
    assert all(part in table for part in ("input", "forward", "backward", "communication", "optimizer"))
    assert "convolution" in table
    assert table in done.stdout
    assert {path.name for path in trace.parent.iterdir()} == {"trace.json", "trace.json.txt"}


def two_steps_of(trainer: Trainer, **settings: Any) -> list[dict[str, Any]]:
    """What takes time in two steps without a report, with all that a step may have to do."""
    job = trainer.job_file(train__max_steps=6, train__log_every_steps=1000, checkpoint__dir=trainer.checkpoints,
                           optimizer__clip_norm=1, ema__decay=0.9, **settings)  # fmt: skip
    trace = trainer.tmp_path / "trace.json"
    subprocess.run([IMGTRAIN, job, "--profile", trace, "--profile-steps", "2:4"], check=True, capture_output=True)
    return events_in(trace)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_an_optimisers_step_is_one_kernel_for_each_group(kind: str, trainer: Trainer) -> None:
    events = two_steps_of(trainer, optimizer__kind=kind, optimizer__lr=0.001)
    # The weights, and what does not decay.
    assert Counter(event["name"] for event in events)[f"aten::_fused_{kind}_"] == 2 * 2


def test_a_step_without_a_report_waits_for_no_value(trainer: Trainer) -> None:
    """On a CPU as on a GPU, where it would wait for the device. (AdamW's kernel for CPUs reads its step's number.)"""
    events = two_steps_of(trainer)
    scopes = [event for event in events if event["name"] in SCOPES]
    assert len(scopes) == 2 * len(SCOPES)
    for scope in scopes:
        inside = within(scope, events)
        assert len(inside) > 5
        assert not inside & SYNCHRONISING, scope["name"]


@pytest.mark.long
def test_a_running_rank_profiles_its_next_steps_and_goes_on(trainer: Trainer) -> None:
    run = trainer.start(2, train__epochs=1000, checkpoint__every_epochs=0)
    run.wait_for_step(2)
    assert send_command(run.folder / "control.1", PROFILE_THREE_STEPS) == b""
    run.wait_for(lambda: bool(run.events("profile", 1)))
    (profile,) = run.events("profile", 1)
    assert profile.rank == 1
    trace = Path(profile.trace)
    assert trace.parent == trainer.checkpoints / "logs"
    assert trace.name == f"profile.g0.rank1.step{profile.step - 2}.json"
    assert names_in(trace)["imgtrain: forward"] == 3
    assert profile.table == Path(f"{trace}.txt").read_text()
    assert not run.events("profile", 0), "the other rank was not asked"
    run.wait_for_step(profile.step + 2)


def test_a_profile_that_is_longer_than_the_run_ends_with_it(trainer: Trainer) -> None:
    job = trainer.job_file(train__max_steps=3, checkpoint__dir=trainer.checkpoints)
    trace = trainer.tmp_path / "trace.json"
    subprocess.run([IMGTRAIN, job, "--profile", trace, "--profile-steps", "1:99"], check=True, capture_output=True)
    assert names_in(trace)["imgtrain: forward"] == 2


@pytest.mark.parametrize("steps", ["5", "5:5", "a:b", "1:2x", ":3"])
def test_steps_that_are_none_are_refused(steps: str, trainer: Trainer) -> None:
    job = trainer.job_file()
    done = subprocess.run([IMGTRAIN, job, "--profile", "x", "--profile-steps", steps], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"--profile-steps: found '{steps}'" in done.stderr
