"""`./run bench control`: how quickly the service itself answers. Its peer, Slurm, is not set up yet and says so."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import BIN, ROOT, Case, finish, measure

sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import Cluster, wait_for  # noqa: E402

SLURM = "Slurm is not part of this benchmark's set-up"
JOB = "name: quick\ndata: {{train: /nowhere}}\nmax_restarts: 0\ncheckpoint: {{dir: {dir}}}\n"


def version_seconds() -> float:
    """Start-up of the client: the mean of 20 starts."""
    begun = time.perf_counter()
    for _ in range(20):
        subprocess.run([BIN / "imgcli", "--version"], check=True, capture_output=True)
    return (time.perf_counter() - begun) / 20


def start_seconds(cluster: Cluster, job: Path, mark: Path) -> float:
    """From before `imgcli submit` to the first instruction of the rank, on an idle agent."""
    mark.unlink(missing_ok=True)
    begun = time.time()
    job_id = cluster.submit(job)
    wait_for("the rank", lambda: mark.exists() and mark.read_text(), 20)
    cluster.wait_state(job_id, "JOB_STATE_FAILED")  # its trainer only says when it began
    return float(mark.read_text()) - begun


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "checkpoints").mkdir()
        mark, trainer, job = root / "mark", root / "trainer", root / "job.yaml"
        trainer.write_text(f"#!/bin/sh\ndate +%s.%N > {mark}\n")
        trainer.chmod(0o755)
        job.write_text(JOB.format(dir=root / "checkpoints"))
        cluster = Cluster(root)
        try:
            cluster.start_daemon()
            cluster.start_agent("a", "--trainer", str(trainer))
            finish("control", measure([
                Case("imgcli --version", "s", "lower", {"imgd": version_seconds}),
                Case("submit to rank started", "s", "lower",
                     {"imgd": lambda: start_seconds(cluster, job, mark), "slurm": SLURM}),
            ], passes=7))  # fmt: skip
        finally:
            cluster.close()


if __name__ == "__main__":
    main()
