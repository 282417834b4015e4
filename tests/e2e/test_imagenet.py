"""From ImageNet's original archives to a finished training job over shards that are served by HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import JOB
from harness import BIN, Cluster, free_port, wait_for
from ilsvrc import WNIDS, write_ilsvrc
from safetensors.numpy import load_file


def imgcli(*args: str | Path, code: int = 0) -> str:
    done = subprocess.run([BIN / "imgcli", *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, f"imgcli {args}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL under which imgcli serves the folder."""
    port = free_port()
    server = subprocess.Popen([BIN / "imgcli", "dataset", "serve", folder, "--port", str(port)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for("the file server to answer", lambda: subprocess.run(
            [BIN / "imgcli", "dataset", "info", f"{url}/val/"], capture_output=True).returncode == 0, 20)  # fmt: skip
        yield url
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0, server.stdout.read() if server.stdout else ""


def labels_in(shards: Path) -> dict[str, str]:
    """WNID of each image by the last part of its name, as any reader of WebDataset sees it."""
    classes = json.loads((shards / "shards.json").read_text())["classes"]
    found = {}
    for shard in sorted(shards.glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar.getmembers():
                if member.name.endswith(".cls"):
                    content = tar.extractfile(member)
                    assert content is not None
                    found[Path(member.name).stem] = classes[int(content.read())]
    return found


def test_the_original_archives_become_a_finished_job_over_http(cluster: Cluster, dataset: Path, tmp_path: Path) -> None:
    truth = write_ilsvrc(tmp_path / "archives", dataset)
    shards = tmp_path / "shards"
    said = imgcli("dataset", "convert", "--from", "ilsvrc2012", tmp_path / "archives", "--index", "restart",
                  "--shards", "3", shards)  # fmt: skip
    assert "repaired, cmyk: 1" in said and "repaired, png: 1" in said and "left out, truncated: 1" in said, said

    train, val = labels_in(shards / "train"), labels_in(shards / "val")
    assert len(train) == 159 and all(name.split("_")[0] == wnid for name, wnid in train.items())
    assert val == {f"ILSVRC2012_val_{i + 1:08}": wnid for i, wnid in enumerate(truth)}
    assert sorted(set(val.values())) == WNIDS
    imgcli("dataset", "verify", "--decode", shards)

    with served(shards) as url:
        assert "159 images in 4 classes" in imgcli("dataset", "info", f"{url}/train/")
        cluster.cli("dataset", "register", "mini-imagenet", url)
        assert cluster.json("dataset", "list")[0]["images"] == str(len(train) + len(val))
        job = tmp_path / "job.yaml"
        job.write_text(JOB.format(nodes=2, epochs=2, data="dataset:mini-imagenet",
                                  checkpoints=tmp_path / "checkpoints"))  # fmt: skip
        number = cluster.submit(job)
        done = cluster.wait_state(number, "JOB_STATE_COMPLETED")
        assert int(done["last_epoch"]["val_images"]) == len(val)
        assert f"{url}/train" in done["job_yaml"]
        assert {int(s["step"]) for s in cluster.steps(number)} == set(range(1, 21))
        shown = cluster.cli("show", str(number)).stdout
        assert "loader" in shown, shown
    refused = cluster.cli("submit", str(job), "--set", "data.train=dataset:mini-imagnet/train", check=False)
    assert refused.returncode == 2 and "did you mean 'mini-imagenet'?" in refused.stderr, refused.stderr


PHASES_JOB = """\
name: {name}
model: {{name: resnet18}}
resources: {{nodes: 2}}
seed: 7
grace: 5s
data: {{train: {shards}/train, val: {shards}/val, image_size: 32, workers: 1}}
phases:
  - {{epochs: 1, image_size: 24, global_batch: 16, train: {small}/train, lr: 0.02, lr_end: 0.04}}
  - {{epochs: 1, image_size: 32, min_scale: 0.25, lr: 0.03, lr_end: 0.01}}
  - {{epochs: 1, image_size: 48, global_batch: 8, min_scale: 0.5, lr: 0.005}}
train: {{epochs: 3, global_batch: 16, precision: fp32, threads: 1, log_every_steps: 1}}
ema: {{decay: 0.9}}
checkpoint: {{dir: {checkpoints}, every_epochs: 1, every_steps: 4}}
"""


@pytest.mark.long
def test_three_phases_end_the_same_whether_the_run_is_killed_or_not(
    cluster: Cluster, dataset: Path, tmp_path: Path
) -> None:
    """159 images: phases of 10, 10 and 20 steps, killed in the first and in the last."""
    write_ilsvrc(tmp_path / "archives", dataset)
    folders = {"shards": tmp_path / "shards", "small": tmp_path / "small"}
    resized = ["--resize", "32"]
    for folder, how in ((folders["shards"], []), (folders["small"], resized)):
        imgcli("dataset", "convert", "--from", "ilsvrc2012", tmp_path / "archives", *how, "--shards", "2", folder)
    checkpoints = tmp_path / "checkpoints"
    ends: dict[str, Path] = {}
    for name, kills in (("whole", []), ("killed", [(0, 7), (1, 26)])):
        job = tmp_path / f"{name}.yaml"
        job.write_text(PHASES_JOB.format(name=name, checkpoints=checkpoints, **folders))
        number = cluster.submit(job)
        for rank, step in kills:
            cluster.wait_step(number, step)
            os.kill(cluster.rank_pids(number)[rank], signal.SIGKILL)
        done = cluster.wait_state(number, "JOB_STATE_COMPLETED", seconds=240)
        assert int(done.get("restarts", 0)) == len(kills)
        ends[name] = next(path for path in checkpoints.rglob("step40") if path not in ends.values())
    for file in ("model.safetensors", "ema.safetensors", "optimizer.safetensors"):
        whole, killed = (load_file(ends[name] / file) for name in ("whole", "killed"))
        assert whole.keys() == killed.keys()
        assert all(np.array_equal(value, killed[key]) for key, value in whole.items()), file
