"""What a job has made, over HTTP and on its page: checkpoints to download, images with the model's answers."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import MakeJob
from harness import BIN, CHROMIUM, NODE, ROOT, Cluster

pytestmark = pytest.mark.skipif(not (BIN / "imgtrain").exists(), reason="there is no imgtrain: ./run build")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "checkpoints").mkdir()
    with Cluster(tmp_path, ["--web-plain-http"]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a")
        cluster.start_agent("b")
        yield cluster


def get(cluster: Cluster, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    url = f"http://127.0.0.1:{cluster.web_port}/api/v1{path}"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        return answer.status, dict(answer.headers), answer.read()


def ask(cluster: Cluster, path: str) -> Any:
    return json.loads(get(cluster, path)[2])


def test_checkpoints_and_images_of_a_real_run(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(nodes=2, epochs=2))
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    checkpoint = ask(cluster, f"/jobs/{job}/checkpoints")["checkpoints"][0]
    assert checkpoint["presence"] == "CHECKPOINT_PRESENCE_HERE"
    assert checkpoint["checkpoint"]["write_seconds"] > 0
    folder = Path(checkpoint["checkpoint"]["path"])
    assert {"model.safetensors", "optimizer.safetensors", "state.json"} <= {f["name"] for f in checkpoint["files"]}
    for file in checkpoint["files"]:
        path = f"/jobs/{job}/checkpoints/{checkpoint['name']}/files/{file['name']}"
        status, headers, body = get(cluster, path)
        assert body == (folder / file["name"]).read_bytes()
        assert (status, len(body)) == (200, int(file["size_bytes"]))
        assert headers["ETag"] == f'"{hashlib.sha256(body).hexdigest()}"'
        # What was broken off goes on.
        half = len(body) // 2
        status, headers, rest = get(cluster, path, **{"Range": f"bytes={half}-", "If-Range": headers["ETag"]})
        assert (status, rest) == (206, body[half:])

    answer = ask(cluster, f"/jobs/{job}/samples")
    images = answer["samples"]["images"]
    assert [image["worst"] for image in images] == [False] * 8 + [True] * 8
    worst = ask(cluster, f"/jobs/{job}/classes")["figures"]["worst"][:8]
    assert [(i["name"], i["answer"]) for i in images[8:]] == [(i["name"], i["answer"]) for i in worst]
    assert len({image["class_name"] for image in images[:8]}) == 4, "from all over the set"
    for number, image in enumerate(images):
        assert image["right"] == (image["class_name"] == image["answer"])
        assert 0.25 <= image["probability"] <= 1
        status, headers, picture = get(cluster, f"/jobs/{job}/samples/{answer['event']}/{number}")
        assert headers["Content-Type"] == "image/jpeg"
        assert picture.startswith(b"\xff\xd8\xff")
        assert len(picture) <= 4096

    shutil.rmtree(folder.parent.parent)
    gone = ask(cluster, f"/jobs/{job}/checkpoints")["checkpoints"][0]
    assert "has no folder" in gone["unseen"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(cluster, f"/jobs/{job}/checkpoints/{checkpoint['name']}/files/model.safetensors")
    assert refused.value.code == 412


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium: apt-get install chromium, or IMGD_CHROMIUM")
@pytest.mark.skipif(not NODE.exists(), reason="there is no Node.js: ./run setup")
def test_the_page_shows_the_images_and_downloads_a_file(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(nodes=1, epochs=1))
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    file = cluster.root / "downloaded"
    script = subprocess.run([NODE, ROOT / "web/test/results.ts", f"http://{cluster.host}:{cluster.web_port}",
                             str(job), file], capture_output=True, text=True, timeout=120,
                            env={**os.environ, "IMGD_CHROMIUM": str(CHROMIUM)})  # fmt: skip
    assert script.returncode == 0, script.stderr
    told = json.loads(script.stdout)
    assert told["pictures"] == 16, "all of them are drawn, with the policy that imgd sends"
    checkpoint = ask(cluster, f"/jobs/{job}/checkpoints")["checkpoints"][0]
    weights = Path(checkpoint["checkpoint"]["path"]) / "model.safetensors"
    assert file.read_bytes() == weights.read_bytes()
    assert told["name"] == f"small-{job}-{checkpoint['name']}-model.safetensors"
