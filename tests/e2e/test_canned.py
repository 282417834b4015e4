"""The canned answers that the pages' own tests run against are of the shapes that a real daemon says it has."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from harness import NODE, ROOT, Cluster

# Messages of the stream, which the document has as parts of answers, and what each has besides.
EVENTS = {"job": "Job", "event": "Event", "nodes": "ListNodesResponse", "step": "StepMetrics",
          "datasets": "ListDatasetsResponse"}  # fmt: skip
BESIDES = {"event: step": {"job_id", "generation", "time_us"}, "event: datasets": {"gone"}}


def schemas_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The schema of each answer, by the path with stars for names, and of each event of the stream."""
    schemas = {f"event: {name}": {"$ref": f"#/components/schemas/{message}"} for name, message in EVENTS.items()}
    for path, operations in document["paths"].items():
        content = operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        if "application/json" in content:
            name = re.sub(r"\{[^}]+\}", "*", path).removeprefix("/api/v1/")
            schemas[name] = content["application/json"]["schema"]
    return schemas


@pytest.mark.skipif(not NODE.exists(), reason="there is no Node.js: ./run setup")
def test_canned_answers_are_as_the_document_of_the_daemon_says(tmp_path: Path) -> None:
    with Cluster(tmp_path, server_args=["--web-plain-http"]) as cluster:
        cluster.start_daemon()
        with urllib.request.urlopen(f"http://{cluster.host}:{cluster.web_port}/api/v1/openapi.json") as answer:
            document = json.load(answer)
    schemas = schemas_of(document)
    validators = {name: jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})
                  for name, schema in schemas.items()}  # fmt: skip
    done = subprocess.run([NODE, ROOT / "web/test/canned.ts"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    faults: dict[str, str] = {}
    seen = set()
    for line in done.stdout.splitlines():
        name, body = json.loads(line)
        seen.add(name)
        if name == "event: job_gone":
            assert body == {"id": "11"}
            continue
        body = {key: value for key, value in body.items() if key not in BESIDES.get(name, ())}
        for error in validators[name].iter_errors(body):
            path = "/".join("*" if isinstance(part, int) else part for part in error.instance_path)
            faults[f"{name}: {path}"] = error.message
    assert not faults, faults
    assert len(seen) >= 19, f"only {sorted(seen)} were held to it"
