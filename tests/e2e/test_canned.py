"""The canned answers that the pages' own tests run against are of the shapes that a real daemon says it has."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from harness import NODE, ROOT, Cluster
from openapi import Document


@pytest.mark.skipif(not NODE.exists(), reason="there is no Node.js: ./run setup")
def test_canned_answers_are_as_the_document_of_the_daemon_says(tmp_path: Path) -> None:
    with Cluster(tmp_path, server_args=["--web-plain-http"]) as cluster:
        cluster.start_daemon()
        document = Document(cluster)
    done = subprocess.run([NODE, ROOT / "web/test/canned.ts"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    faults: dict[str, str] = {}
    seen = set()
    for line in done.stdout.splitlines():
        name, body = json.loads(line)
        seen.add(name)
        faults |= document.faults(name, body)
    assert not faults, faults
    assert len(seen) >= 19, f"only {sorted(seen)} were held to it"
