"""Every answer of the JSON API about a real run, and every event of its stream, is as the OpenAPI document says."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import MakeJob
from harness import BIN, Cluster, wait_for
from openapi import Document, events_of

pytestmark = pytest.mark.skipif(not (BIN / "imgtrain").exists(), reason="there is no imgtrain: ./run build")

# What is asked of a path besides nothing, where that changes what its answer has.
QUERIES = {
    "jobs/{id}/logs": ["rank=0&tail=5&contains=step"],
    "jobs/{id}/metrics": ["names=loss,top1,val_top1&x=time&points=7&smooth=0.9&mean=true", "ranks=true"],
    "jobs/{id}/samples": ["pictures=true"],
    "datasets/{name}": ["pictures=true"],
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "checkpoints").mkdir()
    with Cluster(tmp_path, ["--web-plain-http"]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a", "--label", "zone=east")
        cluster.start_agent("b")
        yield cluster


def get(cluster: Cluster, path: str) -> Any:
    """A stream of bytes, with headers."""
    return urllib.request.urlopen(f"http://{cluster.host}:{cluster.web_port}/api/v1/{path}", timeout=60)


def ask(cluster: Cluster, path: str) -> dict[str, Any]:
    with get(cluster, path) as answer:
        body: dict[str, Any] = json.load(answer)
        return body


def what_stands_for_names(cluster: Cluster, job: int) -> dict[str, str]:
    """In the paths of the document, those of the run."""
    contents = ask(cluster, "datasets/shapes")["facts"]["contents"]
    return {
        "jobs/{id}": f"jobs/{job}",
        "sweeps/{id}": f"sweeps/{job}",
        "nodes/{name}": "nodes/a",
        "datasets/{name}": "datasets/shapes",
        "checkpoints/{name}": f"checkpoints/{ask(cluster, f'jobs/{job}/checkpoints')['checkpoints'][0]['name']}",
        "{file}": "model.safetensors",
        "{event}": str(ask(cluster, f"jobs/{job}/samples")["event"]),
        "{described_us}": contents["time_us"],
        "{number}": "0",
    }


def wrong_answers(cluster: Cluster, document: Document, job: int) -> list[str]:
    """Of every GET that the document has; also those that hold nothing, which the document allows."""
    names = what_stands_for_names(cluster, job)
    edges = [int((time.time() + days * 86400) * 1e6) for days in (-1, 0, 1)]
    wrong = []
    for pattern, content in document.gets.items():
        path = pattern
        for name, real in names.items():
            path = path.replace(name, real)
        assert "{" not in path, f"{pattern}: nothing of the run stands for a name in it"
        if "application/json" not in content:
            with get(cluster, path) as answer:
                if answer.headers["Content-Type"] not in content or not answer.read():
                    wrong.append(f"{path}: {answer.headers}")
            continue
        queries = [f"edges_us={','.join(map(str, edges))}"] if path == "usage/over-time" else [""]
        for query in [*queries, *QUERIES.get(pattern, [])]:
            body = ask(cluster, f"{path}?{query}")
            holds = [value for value in body.values() if value and (isinstance(value, list | dict) or path == "server")]
            if not holds:
                wrong.append(f"{path}?{query}: nothing is in {body}")
            wrong += [f"{place} {fault}" for place, fault in
                      document.faults(re.sub(r"\{[^}]+\}", "*", pattern), body).items()]  # fmt: skip
    return wrong


def test_of_a_real_run(cluster: Cluster, make_job: MakeJob, dataset: Path) -> None:
    document = Document(cluster)
    with get(cluster, "stream") as stream:
        cluster.cli("dataset", "register", "shapes", str(dataset))
        cluster.cli("dataset", "register", "--no-check", "other", "/nowhere")
        cluster.cli("dataset", "forget", "other")
        cluster.cli("token", "create", "--scope", "report", "--name", "for-runs-by-hand")
        # A sweep of two; the second is deleted.
        job = cluster.submit(make_job(nodes=2, epochs=2), "sweep={grid: {optimizer.lr: [0.02, 0.05]}}")
        for each in (job, job + 1):
            cluster.wait_state(each, "JOB_STATE_COMPLETED")
        wait_for("the ranks' times", lambda: "ranks" in ask(cluster, f"jobs/{job}/metrics?ranks=true"), 30)
        wrong = wrong_answers(cluster, document, job)
        assert not wrong, "\n".join(wrong)
        assert len(document.gets) >= 19, "all paths but those that change something"

        cluster.cli("delete", str(job + 1))
        faults: dict[str, str] = {}
        seen = set()
        for kind, body in events_of(stream):
            seen.add(kind)
            faults |= document.faults(f"event: {kind}", body)
            if kind == "job_gone":
                break
    assert not faults, faults
    assert seen == {"event", "job", "job_gone", "step", "nodes", "datasets", "live"}
