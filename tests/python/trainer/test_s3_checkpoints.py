"""Checkpoints in S3: written, gone on from after a kill, and used by imgcli, as those in a folder are."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_s3 import BUCKET, FakeS3
from imgtrain_ranks import BIN, IMGTRAIN, STOP_WITH_CHECKPOINT_COMMAND, Trainer, send_command
from safetensors.torch import load, load_file

PREFIX = "team a+b/x=1"
ROOT = f"s3://{BUCKET}/{PREFIX}/test"


@pytest.fixture
def s3(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    """A bucket that the trainer's runs and imgcli write to; without a folder that the daemon names."""
    server = FakeS3()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    trainer.settings["checkpoint.dir"] = f'"s3://{BUCKET}/{PREFIX}/"'
    try:
        yield server
    finally:
        server.close()


ALONE = {"IMGD_CHECKPOINT_DIR": ""}
SETTINGS: dict[str, Any] = {"train__max_steps": 12, "checkpoint__every_steps": 5, "checkpoint__every_epochs": 0}


def imgcli(*arguments: str | Path) -> str:
    done = subprocess.run([BIN / "imgcli", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def model_of(s3: FakeS3, step: str) -> dict[str, torch.Tensor]:
    return load(s3.objects[f"{PREFIX}/test/{step}/model.safetensors"])


@pytest.mark.long
def test_a_run_that_is_killed_in_mid_upload_ends_as_one_that_was_not(
    trainer: Trainer, s3: FakeS3, tmp_path: Path
) -> None:
    trainer.run(env=ALONE, name="whole", **SETTINGS)
    whole = load(s3.objects[f"{PREFIX}/whole/g0/step12/model.safetensors"])
    s3.hold("test/g0/step10/manifest.json")
    cut = trainer.start(env=ALONE, **SETTINGS)
    assert s3.held.wait(60)
    cut.ranks[0].kill()
    cut.wait()
    assert [e.step for e in cut.events("checkpoint")] == [5], "what is not complete is not reported"
    s3.release(drop=True)

    rest = trainer.run(env=ALONE | {"IMGD_GENERATION": "1"}, **SETTINGS)
    assert rest.events("started")[0].start_step == 5
    assert rest.events("started")[0].resumed_from == f"{ROOT}/g0/step5"
    assert [e.path for e in rest.events("checkpoint")] == [f"{ROOT}/g1/step10", f"{ROOT}/g1/step12"]
    for name, tensor in model_of(s3, "g1/step12").items():
        assert torch.allclose(tensor, whole[name], atol=1e-6), name
    assert not [key for key in s3.names() if "test/g0/step10/" in key], "what the kill left is removed"
    assert not s3.uploads
    assert (rest.folder / "logs").is_dir(), "figures stay here"
    assert not (rest.folder / "staging").exists()

    listed = json.loads(imgcli("checkpoints", ROOT, "-o", "json"))
    assert [(c["generation"], c["step"]) for c in listed] == [(1, 12), (1, 10), (0, 5)]
    assert listed[0]["size_bytes"] > 1_000_000
    out = tmp_path / "weights.safetensors"
    imgcli("export", f"{ROOT}:latest", "--to", "safetensors", "-o", out)
    exported = load_file(out)
    for name, tensor in model_of(s3, "g1/step12").items():
        assert torch.equal(tensor, exported[name]), name


@pytest.mark.long
def test_a_damaged_one_is_passed_over_and_imgcli_pins_compares_and_deletes(
    trainer: Trainer, s3: FakeS3, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"checkpoint__every_steps": 2, "data__val": trainer.val, "train__epochs": 2}
    trainer.run(env=ALONE, train__max_steps=4, **settings)
    imgcli("checkpoints", "pin", f"{ROOT}:2", "--note", "for the paper")
    key = f"{PREFIX}/test/g0/step4/model.safetensors"
    s3.objects[key] = s3.objects[key][:-1] + bytes([s3.objects[key][-1] ^ 1])
    rest = trainer.run(env=ALONE, train__max_steps=10, checkpoint__keep=1, checkpoint__keep_best=0, **settings)
    assert rest.events("started")[0].start_step == 2
    assert "g0/step4 is passed over" in rest.output[0][1]
    listed = json.loads(imgcli("checkpoints", ROOT, "-o", "json"))
    assert [(c["step"], c["pinned"]) for c in listed] == [(10, False), (2, True)]
    assert listed[0]["validation"]["images"] == 27
    assert "equal" in imgcli("checkpoints", "compare", f"{ROOT}:2", f"{ROOT}/g0/step10")
    promoted = imgcli("model", "promote", f"{ROOT}/g0/step10", "small", "--registry", tmp_path / "models")
    assert f"small:v1 is the weights of {ROOT}/g0/step10" in promoted
    imgcli("checkpoints", "unpin", f"{ROOT}:2")
    imgcli("checkpoints", "delete", f"{ROOT}/g0/step2", "--yes")
    assert not [key for key in s3.names() if "/step2/" in key]


def test_weights_in_a_bucket_are_begun_with_and_evaluated(trainer: Trainer, s3: FakeS3) -> None:
    trainer.run(2, env=ALONE, train__max_steps=3)
    weights = f"{ROOT}/g0/step3/model.safetensors"
    run = trainer.run(2, name="other", model__init_from=f'"{weights}"', train__max_steps=1)
    assert f"model.init_from: {weights}: begins with" in run.output[0][0] + run.output[0][1]
    done = subprocess.run([IMGTRAIN, "eval", "--json", weights, trainer.val, "--set", "data.val_size=32"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["images"] == 27


def test_a_stop_with_checkpoint_ends_when_that_is_uploaded(trainer: Trainer, s3: FakeS3) -> None:
    run = trainer.start(env=ALONE, train__epochs=1000, checkpoint__every_epochs=0)
    run.wait_for_step(2)
    s3.hold("manifest.json")
    send_command(run.folder / "control.0", STOP_WITH_CHECKPOINT_COMMAND)
    assert s3.held.wait(60)
    assert run.ranks[0].poll() is None
    s3.release()
    assert run.wait() == [11]
    written = run.events("checkpoint")
    assert len(written) == 1
    assert f"{PREFIX}/test/g0/step{written[0].step}/manifest.json" in s3.names()


def test_what_keeps_checkpoints_from_being_written_is_found_before_the_training(trainer: Trainer, s3: FakeS3) -> None:
    wrong = trainer.start(env=ALONE | {"AWS_SECRET_ACCESS_KEY": "wrong"})
    assert wrong.wait() == [2]
    assert f"checkpoint.dir: {ROOT}/.imgtrain-" in wrong.output[0][1]
    assert "403 SignatureDoesNotMatch (AWS_ACCESS_KEY_ID" in wrong.output[0][1]
    other = trainer.start(env=ALONE, checkpoint__dir="s3://nowhere/x")
    assert other.wait() == [2]
    assert "404 NoSuchBucket" in other.output[0][1]
    away = trainer.start(env=ALONE | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    assert away.wait() == [1], "it may come back"
    assert "cannot reach s3://" in away.output[0][1]
