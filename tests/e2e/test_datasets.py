"""What imgd knows of data sets: from the job that converts one, and from who registers or verifies one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import CHROMIUM, NODE, ROOT, Cluster, processes_with, wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "checkpoints").mkdir()
    with Cluster(tmp_path, ["--web-plain-http"]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        yield cluster


def get(cluster: Cluster, path: str) -> bytes:
    url = f"http://127.0.0.1:{cluster.web_port}/api/v1/datasets{path}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
        return body


def known(cluster: Cluster, name: str) -> Any:
    return json.loads(get(cluster, f"/{name}"))


def pictures(cluster: Cluster, name: str) -> list[bytes]:
    contents = known(cluster, name)["facts"]["contents"]
    return [get(cluster, f"/{name}/samples/{contents['time_us']}/{i}") for i in range(len(contents["samples"]))]


def stream(cluster: Cluster) -> Any:
    return urllib.request.urlopen(f"http://127.0.0.1:{cluster.web_port}/api/v1/stream", timeout=60)


def told_of(listener: Any, name: str) -> Iterator[Any]:
    """What the stream says of a data set, each time it does."""
    kind = ""
    for raw in listener:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            kind = line[7:]
        if line.startswith("data: ") and kind == "datasets":
            yield from (one for one in json.loads(line[6:])["datasets"] if one["name"] == name)


def submit(cluster: Cluster, folder: Path, text: str) -> int:
    (folder / "convert.yaml").write_text(text)
    return int(cluster.json("submit", str(folder / "convert.yaml"))["id"])


def make_many(dataset: Path, out: Path) -> dict[str, int]:
    """Enough images for a conversion of some seconds, one of them broken; how many good ones each part has."""
    counts = {}
    for split, times in (("train", 60), ("val", 1)):
        images = sorted((dataset / split).rglob("*.jpg"))
        counts[split] = len(images) * times
        for image in images:
            folder = out / split / image.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(times):
                os.link(image, folder / f"{image.stem}-{i}.jpg")
    (folder / "broken.jpg").write_bytes(b"no picture")
    return counts


def test_a_conversion_tells_how_far_it_is_and_what_it_made(cluster: Cluster, dataset: Path, tmp_path: Path) -> None:
    images = make_many(dataset, tmp_path / "many")
    with stream(cluster) as listener:
        job = submit(cluster, tmp_path, f"name: conv\nconvert: {{source: {tmp_path}/many, target: {tmp_path}/shards, "
                     "jobs: 1, resize: 40, shards: 2, register: shapes}\n")  # fmt: skip
        now = wait_for("how far it is", lambda: known(cluster, "shapes")["dataset"].get("progress"))
        # It stands still while one looks.
        converters = processes_with(f"IMGD_RUN_DIR={cluster.root}/", "environ")
        for pid in converters:
            os.kill(pid, signal.SIGSTOP)
        assert now["job_id"] == str(job) and now["part"] in images and int(now["done"]) <= int(now["total"])
        told = next(told for told in told_of(listener, "shapes") if "progress" in told)
        assert told["made_by"] == told["progress"]["job_id"] == str(job)
        assert "conversion" in cluster.cli("dataset", "show", "shapes").stdout
        for pid in converters:
            os.kill(pid, signal.SIGCONT)
        cluster.wait_state(job, "JOB_STATE_COMPLETED")
        told = next(told for told in told_of(listener, "shapes") if told["made_by"] == "0")
        assert "progress" not in told and int(told["verified_us"]) > 0

    told = known(cluster, "shapes")
    contents, verification = told["facts"]["contents"], told["facts"]["verification"]
    assert {part["name"]: int(part["images"]) for part in contents["parts"]} == images
    classes = sorted(folder.name for folder in (dataset / "train").iterdir())
    assert [row["name"] for row in contents["parts"][0]["classes"]] == classes
    for part in contents["parts"]:
        assert sum(int(row["images"]) for row in part["classes"]) == int(part["images"])
    assert (int(told["dataset"]["images"]), told["dataset"]["classes"]) == (sum(images.values()), len(classes))
    assert contents["told_by"] == f"job {job} on node a"
    assert contents["left_out"] == "1" and "broken" in contents["left_out_images"][0]["place"]
    assert verification["images"] == str(sum(images.values()))
    assert (verification["broken"], verification["checksums"], verification["decoded"]) == ("0", "4", "0")
    assert verification["version"] and verification["findings"] == []
    shown = pictures(cluster, "shapes")
    assert 12 <= len(shown) <= 36
    assert all(jpeg.startswith(b"\xff\xd8\xff") and len(jpeg) <= 4096 for jpeg in shown)
    for sample in contents["samples"]:
        assert classes[sample["label"]] == sample["class_name"]
    text = cluster.cli("dataset", "show", "shapes").stdout
    assert "faults" in text and "none" in text and classes[0] in text and "left out when it was converted" in text

    # It is there after a restart too, and goes with the name.
    assert cluster.daemon
    cluster.daemon.kill()
    cluster.daemon.wait()
    cluster.start_daemon()
    assert known(cluster, "shapes")["facts"] == told["facts"]
    assert pictures(cluster, "shapes") == shown
    cluster.cli("dataset", "forget", "shapes")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        known(cluster, "shapes")


def test_of_a_set_without_a_conversion_who_registers_and_verifies_it_tells(
    cluster: Cluster, dataset: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(dataset, mine)
    cluster.cli("dataset", "register", "unseen", "/nowhere", "--no-check")
    assert known(cluster, "unseen")["facts"] == {}
    assert "never" in cluster.cli("dataset", "show", "unseen").stdout
    cluster.cli("dataset", "register", "mine", str(mine))
    told = known(cluster, "mine")
    assert "verification" not in told["facts"] and told["dataset"]["verified_us"] == "0"
    assert pictures(cluster, "mine")
    victim = next((mine / "val").rglob("*.jpg"))
    victim.write_bytes(victim.read_bytes()[:200])
    found = cluster.cli("dataset", "verify", "--decode", "dataset:mine", check=False)
    assert found.returncode == 6, found.stderr
    told = known(cluster, "mine")
    verification = told["facts"]["verification"]
    assert verification["broken"] == told["dataset"]["broken"] == "1"
    assert victim.name in verification["findings"][0]["place"]
    assert int(verification["decoded"]) == int(told["dataset"]["images"])
    assert victim.name in cluster.cli("dataset", "show", "mine").stdout
    # Of a part of it imgd keeps nothing.
    assert cluster.cli("dataset", "verify", "dataset:mine/train").returncode == 0
    assert known(cluster, "mine")["facts"]["verification"] == verification


@pytest.mark.skipif(not CHROMIUM or not NODE.exists(), reason="no Chromium, or no Node.js: ./run setup")
def test_the_page_of_a_set_that_a_job_made(cluster: Cluster, dataset: Path, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path, f"name: conv\nconvert: {{source: {dataset}, target: {tmp_path}/shards, "
                 "register: shapes}\n")  # fmt: skip
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    wait_for("what it made", lambda: known(cluster, "shapes")["facts"].get("contents"))
    page = subprocess.run([NODE, ROOT / "web/test/dataset.ts", f"http://127.0.0.1:{cluster.web_port}", "shapes"],
                          capture_output=True, text=True, check=False, timeout=120)  # fmt: skip
    assert page.returncode == 0, page.stderr
    shown = json.loads(page.stdout)
    assert shown["pictures"] == len(known(cluster, "shapes")["facts"]["contents"]["samples"])
    assert "nothing is broken" in shown["text"] and "verified" in shown["text"]
