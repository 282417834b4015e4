"""How imgtrain ends when something is wrong: quickly, with a sentence and the right code."""

# ruff: noqa: ANN401  (a setting may have any type that YAML has)
from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import free_port
from imgtrain_ranks import IMGTRAIN, Trainer, make_images


def alone(
    trainer: Trainer, *arguments: str, env: dict[str, str] | None = None, **changes: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [IMGTRAIN, trainer.job_file(**changes), *arguments],
        cwd=trainer.tmp_path,
        timeout=60,
        capture_output=True,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | (env or {}),
        check=False,
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_at_once_in_mid_step(number: int, code: int, trainer: Trainer) -> None:
    # A step of this takes long on one thread.
    run = trainer.start(
        model__name="resnet50",
        data__image_size=224,
        train__global_batch=72,
        train__epochs=50,
    )
    run.wait_for(lambda: bool(run.events("started")))
    time.sleep(1)
    sent = time.monotonic()
    run.ranks[0].send_signal(number)
    assert run.wait(10) == [code]
    assert time.monotonic() - sent < 2
    assert "was ended by SIG" in run.events("failed")[0].message
    assert not run.events("failed")[0].bad_input


def test_sigterm_to_a_rank_that_waits_for_its_gang_ends_it_at_once(trainer: Trainer) -> None:
    """By hand: there is no step after which it could save, and the others may never come."""
    job = trainer.job_file()
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
    with subprocess.Popen([IMGTRAIN, job], cwd=trainer.tmp_path, env=os.environ | place, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as rank:  # fmt: skip
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as there:
                if there.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        rank.send_signal(signal.SIGTERM)
        try:
            assert rank.wait(5) == 143
        finally:
            rank.kill()


def test_sigterm_to_a_run_by_hand_saves_first(trainer: Trainer) -> None:
    """As from Slurm: to one of two ranks, both of which save what they have and end alike."""
    settings: dict[str, Any] = {"train__epochs": 1000, "checkpoint__every_epochs": 0}
    run = trainer.start(2, env={"IMGD_RUN_DIR": ""}, **settings)
    for line in run.ranks[0].stdout or ():
        if line.split()[:1] == ["3"]:
            break
    run.ranks[1].send_signal(signal.SIGTERM)
    assert run.wait(10) == [11, 11]
    assert "the run ends after this step" in "".join(run.output[1])
    saved = {path.parent.name for path in trainer.checkpoints.glob("g0/step*/manifest.json")}
    assert len(saved) == 1
    again = trainer.start(2, **settings)
    again.wait_for(lambda: bool(again.events("started")))
    assert f"step{again.events('started')[0].start_step}" in saved


@pytest.mark.long
def test_sigterm_to_a_run_of_the_demos_size_saves_after_the_next_step(trainer: Trainer, tmp_path: Path) -> None:
    """As deploy/demo/job.yaml has it: two ranks of a thread."""
    train = make_images(tmp_path / "train", per_class=80)
    run = trainer.start(2, env={"IMGD_RUN_DIR": ""}, data__train=train, data__image_size=48, train__global_batch=64,
                        train__precision="bf16", train__epochs=1000, checkpoint__every_epochs=0,
                        optimizer__clip_norm=5)  # fmt: skip
    seen = 0
    for line in run.ranks[0].stdout or ():
        if line.split()[:1] == ["4"]:
            seen = 4
            break
    sent = time.monotonic()
    run.ranks[1].send_signal(signal.SIGTERM)
    assert run.wait(20) == [11, 11]
    assert time.monotonic() - sent < 10
    (manifest,) = trainer.checkpoints.glob("g0/step*/manifest.json")
    saved = int(manifest.parent.name.removeprefix("step"))
    # It comes in the middle of one, which the ranks have agreed on already.
    assert seen == 4 and saved <= seen + 2


def test_two_signals_to_a_run_by_hand_end_it_at_once(trainer: Trainer) -> None:
    run = trainer.start(env={"IMGD_RUN_DIR": ""}, model__name="resnet50", data__image_size=224, train__global_batch=72)
    time.sleep(4)
    for _ in range(2):
        run.ranks[0].send_signal(signal.SIGTERM)
        time.sleep(0.2)
    assert run.wait(5) == [143]
    assert not list(trainer.checkpoints.glob("g0/step*/manifest.json"))


def test_a_rank_whose_peer_dies_says_that_a_collective_broke(trainer: Trainer) -> None:
    run = trainer.start(2, train__epochs=1000, checkpoint__every_epochs=0)
    run.wait_for_step(2)
    run.ranks[1].kill()
    killed = time.monotonic()
    assert run.wait(30) == [10, -9]
    assert time.monotonic() - killed < 5
    failed = run.events("failed")[0]
    assert failed.collective_broken and not failed.bad_input
    assert failed.message.startswith("rank 0: a collective broke at step ")
    assert failed.message in run.output[0][1]
    assert len(run.output[0][1].splitlines()) == 1
    assert ".cc" not in failed.message and "GLHF" not in failed.message


def test_rank_0_may_be_the_one_that_dies(trainer: Trainer) -> None:
    run = trainer.start(3, train__epochs=1000, train__global_batch=18, checkpoint__every_epochs=0)
    run.wait_for_step(2)
    run.ranks[0].kill()
    assert run.wait(30) == [-9, 10, 10]
    assert run.events("failed", rank=2)[0].collective_broken


def test_a_rank_that_hangs_is_named_after_the_time_out(trainer: Trainer) -> None:
    run = trainer.start(
        2,
        train__epochs=1000,
        checkpoint__every_epochs=0,
        env={"IMGD_COLLECTIVE_TIMEOUT_SECONDS": "4"},
    )
    run.wait_for_step(2)
    time.sleep(2.5)  # its place is published every 2 s
    run.ranks[1].send_signal(signal.SIGSTOP)
    assert run.ranks[0].wait(30) == 10, run.ranks[0].communicate()
    message = run.events("failed")[0].message
    assert f"rank 1 on {socket.gethostname()} was last seen at step " in message, message


def test_a_hanging_rank_0_holds_up_nobody_though_it_keeps_the_store(trainer: Trainer) -> None:
    run = trainer.start(
        2,
        train__epochs=1000,
        checkpoint__every_epochs=0,
        env={"IMGD_COLLECTIVE_TIMEOUT_SECONDS": "4"},
    )
    run.wait_for_step(2)
    run.ranks[0].send_signal(signal.SIGSTOP)
    assert run.ranks[1].wait(30) == 10, run.ranks[1].communicate()
    message = run.events("failed", rank=1)[0].message
    assert "the rendezvous store, which rank 0 or its launcher keeps, does not answer" in message, message


def test_a_rank_says_where_it_is_and_how_long_that_may_take(trainer: Trainer) -> None:
    run = trainer.start(2, train__epochs=1000, checkpoint__every_epochs=0, limits__silence="20s", limits__step="30s")
    run.wait_for_step(10)
    run.ranks[1].send_signal(signal.SIGSTOP)
    path = run.folder / "pulse.0"
    time.sleep(4)  # by then it has counted what it waits for
    assert b"all-reduce" in path.read_bytes()
    beats, moves, step, collectives, limit_ms, silence_ms = struct.unpack_from("=6Q", path.read_bytes(), 16)
    assert beats > 4 and moves > 20 and step >= 10 and collectives > 20
    assert (limit_ms, silence_ms) == (30_000, 20_000)
    time.sleep(1.5)
    later = struct.unpack_from("=2Q", path.read_bytes(), 16)
    assert later[0] > beats, "it lives"
    assert later[1] == moves, "and stands still"
    for rank in run.ranks:
        rank.kill()


def test_the_first_steps_of_a_start_and_of_a_phase_may_take_longer(trainer: Trainer) -> None:
    """Six steps in each of two phases, of which three choose their algorithms."""
    run = trainer.start(model__name="resnet50", phases="[{until: 1, image_size: 64}, {until: 2, image_size: 48}]",
                        train__epochs=2, train__global_batch=12, checkpoint__every_epochs=0, limits__step="30s",
                        limits__autotune="77s")  # fmt: skip
    path = run.folder / "pulse.0"
    run.wait_for(path.exists)
    limits: dict[int, set[int]] = {step: set() for step in range(13)}
    while run.ranks[0].poll() is None:
        _, _, step, _, limit_ms, _ = struct.unpack_from("=6Q", path.read_bytes(), 16)
        limits[step].add(limit_ms)
        time.sleep(0.002)
    assert run.wait() == [0], run.output
    # On its edges a step's number and its limit change one after the other.
    for first in (0, 6):
        assert all(77_000 in limits[first + i] for i in range(3)), limits
        assert 30_000 not in limits[first + 1], limits
        assert all(30_000 in limits[first + i] for i in range(3, 6)), limits
        assert 77_000 not in limits[first + 4], limits


def test_a_job_file_with_errors_lists_each_with_its_place(trainer: Trainer) -> None:
    job = trainer.tmp_path / "bad.yaml"
    job.write_text("name: x\ndata: {train: /x, imge_size: 3}\nmodel: {name: resnet51}\n")
    done = subprocess.run([IMGTRAIN, job], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert f"{job}:2:" in lines[0] and "did you mean 'image_size'?" in lines[0]
    assert f"{job}:3:" in lines[1] and "resnet50" in lines[1]


def test_a_job_file_that_is_not_there(trainer: Trainer) -> None:
    done = subprocess.run(
        [IMGTRAIN, "nothing.yaml"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "cannot open nothing.yaml" in done.stderr


def test_settings_on_the_command_line(trainer: Trainer) -> None:
    done = alone(trainer, "--set", "train.max_steps=1", "--set", "name=other")
    assert done.returncode == 0, done.stderr
    assert (trainer.tmp_path / "checkpoints" / "other" / "g0" / "step1").exists()
    assert "done: 1 steps" in done.stdout
    assert alone(trainer, "--set", "nonsense").returncode == 2
    assert alone(trainer, "--sett", "a=b").returncode == 2


def test_a_data_folder_that_is_not_there_or_has_nothing_in_it(trainer: Trainer, tmp_path: Path) -> None:
    done = alone(trainer, data__train="/no/such/folder")
    assert done.returncode == 2
    assert "data.train" in done.stderr and "/no/such/folder" in done.stderr
    empty = tmp_path / "empty"
    (empty / "class0").mkdir(parents=True)
    done = alone(trainer, data__train=empty)
    assert done.returncode == 2
    assert str(empty) in done.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_data_server_that_is_away_is_no_fault_of_the_job(ranks: int, trainer: Trainer) -> None:
    url = f"http://127.0.0.1:{free_port()}/train/"
    run = trainer.start(ranks, data__train=url, env={"no_proxy": "127.0.0.1"})
    assert run.wait(60) == [1] * ranks, "imgd tries again after 1, not after 2; 10 would accuse another rank"
    for rank in range(ranks):
        failed = run.events("failed", rank)[0]
        assert not failed.bad_input and not failed.collective_broken
        assert re.match(f"data.train: cannot reach {url}shards.json, after [0-9]+ tries in [0-9]+ s: ", failed.message)
        assert failed.message in run.output[rank][1]


def test_classes_that_do_not_fit(trainer: Trainer, tmp_path: Path) -> None:
    done = alone(trainer, model__classes=7)
    assert done.returncode == 2
    assert "model.classes is 7" in done.stderr and "has 4 classes" in done.stderr
    other = make_images(tmp_path / "other", per_class=1, classes=3)
    done = alone(trainer, data__val=other)
    assert done.returncode == 2
    assert "'class3' is only in data.train" in done.stderr


def test_a_decoder_on_the_gpu_needs_a_gpu(trainer: Trainer) -> None:
    done = alone(trainer, data__decoder="nvjpeg")
    assert done.returncode == 2
    assert "train.device: is cpu, but data.decoder: nvjpeg needs a GPU" in done.stderr, done.stderr
    done = alone(trainer, data__decoder="nvjpeg", train__device="auto")
    assert done.returncode == 2
    assert "data.decoder: nvjpeg needs a GPU, but this rank computes on the CPU" in done.stderr, done.stderr


def test_data_without_one_good_image_are_bad_input(trainer: Trainer, tmp_path: Path) -> None:
    bad = make_images(tmp_path / "bad", per_class=3)
    for image in bad.glob("*/*.jpg"):
        image.write_bytes(b"no image")
    done = alone(trainer, data__train=bad, train__global_batch=4)
    assert done.returncode == 2
    assert f"none of the images of data.train ({bad}) could be decoded" in done.stderr
    done = alone(trainer, data__val=bad, train__max_steps=2)
    assert done.returncode == 2
    assert f"none of the images of data.val ({bad}) could be decoded" in done.stderr


def test_names_of_damaged_images_need_not_be_utf8(trainer: Trainer, tmp_path: Path) -> None:
    train = make_images(tmp_path / "train", per_class=5)
    with open(os.fsencode(train / "class1") + b"/caf\xe9.jpg", "wb") as image:  # noqa: PTH123  (no such Path)
        image.write(b"no image")
    run = trainer.run(data__train=train, data__val=train, train__epochs=3)
    bad = run.events("bad_image")
    assert [b.path for b in bad] == ["class1/caf\ufffd.jpg"] * 2, "once in training, once in validation"
    assert run.events("finished")


def test_a_checkpoint_folder_that_cannot_be_written_to_is_found_before_the_training(trainer: Trainer) -> None:
    done = alone(trainer, checkpoint__dir="/proc/x")
    assert done.returncode == 2
    assert done.stderr.startswith("imgtrain: error: checkpoint.dir: cannot create folder /proc/x"), done.stderr
    assert "step" not in done.stdout


def test_weights_that_are_no_numbers_are_not_saved(trainer: Trainer) -> None:
    done = alone(trainer, optimizer__lr=1e6, schedule__warmup_epochs=0, train__log_every_steps=1000, train__epochs=2)
    assert done.returncode == 2
    assert "training diverged" in done.stderr
    assert not list(trainer.tmp_path.glob("checkpoints/*/*/*/manifest.json"))


def test_a_port_in_use_and_a_rank_0_that_does_not_come_are_one_sentence(trainer: Trainer) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        env = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(other.getsockname()[1])}
        done = alone(trainer, env=env | {"RANK": "0"})
        assert done.returncode == 2
        assert "where another program listens on this machine" in done.stderr
    done = alone(trainer, env=env | {"RANK": "1", "IMGD_JOIN_TIMEOUT_SECONDS": "1"})
    assert done.returncode == 10
    assert len(done.stderr.splitlines()) == 1, done.stderr
    who = f"rank 1 on {socket.gethostname()}: cannot join the gang at 127.0.0.1:{env['MASTER_PORT']}, "
    assert f"{who}connecting to rank 0's store: " in done.stderr, done.stderr


def test_an_image_that_cannot_be_decoded_is_reported_and_left_out(trainer: Trainer, tmp_path: Path) -> None:
    train = make_images(tmp_path / "train", per_class=5)
    (train / "class1" / "002.jpg").write_bytes(b"no image")
    run = trainer.run(data__train=train, train__epochs=2, train__global_batch=4)
    bad = run.events("bad_image")
    assert bad and bad[0].path == "class1/002.jpg" and bad[0].error
    assert run.events("finished")[0].step == 10
    ended = trainer.start(
        data__train=train,
        train__epochs=4,
        train__global_batch=4,
        data__max_bad_images=0,
    )
    assert ended.wait() == [2]
    assert ended.events("failed")[0].bad_input


def test_a_checkpoint_folder_that_cannot_be_written_is_named(trainer: Trainer) -> None:
    trainer.checkpoints.write_text("a file where a folder should be")
    run = trainer.start(train__max_steps=1)
    assert run.wait() == [2]
    assert str(trainer.checkpoints) in run.output[0][1]


def test_a_run_that_diverges_ends_with_advice(trainer: Trainer) -> None:
    run = trainer.start(optimizer__lr=1e6, train__epochs=20, schedule__warmup_epochs=0)
    assert run.wait() == [2]
    assert "training diverged" in run.output[0][1]
    assert run.events("failed")[0].bad_input


@pytest.mark.long
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_stays_near_the_full_ones_curve(precision: str, trainer: Trainer) -> None:
    settings: dict[str, Any] = {
        "train__max_steps": 5,
        "train__freeze_batch_norm": True,
        "optimizer__lr": 0.02,
    }
    full = trainer.run(**settings).losses()
    trainer.checkpoints /= precision
    run = trainer.run(train__precision=precision, **settings)
    half = run.losses()
    # As LibTorch asks it; a processor without computes in fp32, and the run says so.
    supported = getattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported")()
    assert (half != full) == supported
    assert (f"no {precision} convolutions; computing in fp32" in run.output[0][1]) == (not supported)
    for step, loss in full.items():
        assert half[step] == pytest.approx(loss, abs=0.05), step


def test_tf32_on_a_cpu_is_fp32_and_says_so(trainer: Trainer) -> None:
    full = trainer.run(train__max_steps=2)
    trainer.checkpoints /= "tf32"
    run = trainer.run(train__max_steps=2, train__precision="tf32")
    assert run.losses() == full.losses()
    assert "tf32 is of GPUs; computing in fp32" in run.output[0][1]
    assert "tf32" not in full.output[0][1]
