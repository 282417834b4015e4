"""`./run bench web`: what 2,000 listeners cost imgd, how long charts of 10^8 points, a list of 10,000 jobs and a search
in a log of 1 GB take, pages in Chromium, and the size of these.

usage: web.py [--listeners N] [--runs N] [--chart-runs N] [--reports N] [--long-runs N] [--long-reports N] [--jobs N]
              [--log-bytes N] [--only pages|charts|listeners|jobs|logs|size]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import http.client
import json
import os
import resource
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from listeners import Listeners
from logs import LogCalls, write_log
from report import BIN, ROOT, Case, Seen, finish, measure

SECONDS = 20.0
JOBS = 40  # that report a step each second
TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class Daemon:
    """A daemon on loopback, with plain HTTP or, as it is handed out, HTTPS, and jobs that report by hand."""

    def __init__(self, root: Path, tls: bool = False) -> None:
        self.port, self.web = free_port(), free_port()
        self.ca = root / "imgd/ca.crt" if tls else None
        self.base = f"http{'s' if tls else ''}://127.0.0.1:{self.web}"
        self.process = subprocess.Popen(
            [BIN / "imgd", "--listen", f"127.0.0.1:{self.port}", "--web-listen", f"127.0.0.1:{self.web}",
             *([] if tls else ["--web-plain-http"]), "--state-dir", root / "imgd"],
            stdin=subprocess.DEVNULL, stdout=(root / "imgd.log").open("wb"), stderr=subprocess.STDOUT)  # fmt: skip
        self.await_web(root)
        self.token = subprocess.run(
            [BIN / "imgcli", "--server", f"127.0.0.1:{self.port}", "token", "create", "--scope", "report"],
            check=True, capture_output=True, text=True).stdout.strip()  # fmt: skip
        self.connection = http.client.HTTPConnection("127.0.0.1", self.web, timeout=30)
        if self.ca:
            trust = ssl.create_default_context(cafile=str(self.ca))
            self.connection = http.client.HTTPSConnection("127.0.0.1", self.web, timeout=30, context=trust)

    def await_web(self, root: Path) -> None:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.web), 1):
                break
            if self.process.poll() is not None:
                raise SystemExit((root / "imgd.log").read_text())
            time.sleep(0.05)

    def post(self, path: str, body: object) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.connection.request("POST", "/api/v1/reports" + path, json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {text!r}")
        return json.loads(text)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1000

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def report_steps(daemon: Daemon, jobs: list[str], stop: threading.Event) -> None:
    """A step of each job each second."""
    step = 0
    while not stop.is_set():
        begin = time.monotonic()
        step += 1
        for job in jobs:
            daemon.post(f"/{job}/events", {"events": [{"sequence": step, "step": {"step": step, "loss": 7 / step}}]})
        stop.wait(max(0.0, 1 - (time.monotonic() - begin)))


@contextlib.contextmanager
def reporting(daemon: Daemon) -> Iterator[None]:
    jobs = [report_job(daemon, i) for i in range(JOBS)]
    stop = threading.Event()
    thread = threading.Thread(target=report_steps, args=(daemon, jobs, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def listening(count: int, tls: bool) -> dict[str, float]:
    """Cores that imgd uses, its memory in MB, and how much of that is for those who listen, while so many listen to
    all that 40 jobs report."""
    with tempfile.TemporaryDirectory() as root:
        daemon = Daemon(Path(root), tls)
        try:
            with reporting(daemon):
                time.sleep(3)
                alone = daemon.megabytes()
                listeners = Listeners(daemon.web, count, daemon.ca)
                listeners.read_for(3)
                before = daemon.cpu_seconds()
                listeners.received = 0
                listeners.read_for(SECONDS)
                cores = (daemon.cpu_seconds() - before) / SECONDS
                megabytes = daemon.megabytes()
                if listeners.ended or (count and not listeners.received):
                    raise SystemExit(f"{listeners.ended} listeners were disconnected")
                listeners.close()
        finally:
            daemon.end()
    return {"cores": cores, "MB": megabytes, "MB for them": megabytes - alone}


def listeners(n: int) -> list[Case]:
    """The goal is that of imgd as it is handed out, which serves HTTPS."""
    cases = []
    for count, way in ((0, ""), (n, " by plain HTTP"), (n, " by HTTPS")):
        tls = way == " by HTTPS"
        seen = Seen(functools.partial(listening, count, tls))
        what = f"{JOBS} jobs report a step a second, {count:,} listen{way}"
        cases += [
            Case(f"{what}: processor", "cores", "lower", {"imgd": seen.figure("cores")}, "at most 0.5" if tls else ""),
            Case(f"{what}: memory", "MB", "lower", {"imgd": seen.figure("MB")}),
        ]
        if count:
            goal = "at most 100" if tls else ""
            cases.append(Case(f"{what}: memory for them", "MB", "lower", {"imgd": seen.figure("MB for them")}, goal))
    return cases


class Charts:
    """metrics.db is made once for all passes."""

    def __init__(self, runs: int, reports: int) -> None:
        self.reports = reports
        self.figures: list[dict[str, Any]] = []
        for _ in range(3):
            with tempfile.TemporaryDirectory(dir=os.environ.get("IMGD_BENCH_DIR")) as root:
                done = subprocess.run([BIN / "history_bench", root, str(runs), str(reports)], check=True,
                                      capture_output=True, text=True)  # fmt: skip
            self.figures.append(json.loads(done.stdout))
            print(f"  {done.stdout.strip()}", flush=True)

    def cases(self) -> list[Case]:
        points = f"{self.figures[0]['points']:,} points in runs of {self.reports:,} reports"
        out = [Case(f"{points}: {what}, slowest of 50", "ms", "lower",
                    {"imgd": functools.partial(self.next, [f["queries"][what]["slowest_ms"] for f in self.figures])},
                    "at most 100")
               for what in self.figures[0]["queries"]]  # fmt: skip
        sizes = [f["bytes"] / f["points"] for f in self.figures]
        return [
            *out,
            Case(f"{points} on disk", "bytes a point", "lower", {"imgd": functools.partial(self.next, sizes)}),
        ]

    @staticmethod
    def next(values: list[float]) -> float:
        return values.pop(0)


def report_job(daemon: Daemon, number: int) -> str:
    body = {"name": f"run-{number}", "job_yaml": "name: run\n", "hosts": ["h"], "nodes": 1, "ranks_per_node": 1,
            "idempotency_key": f"0123456789abcdef{number}"}  # fmt: skip
    job: str = daemon.post("", body)["job_id"]
    return job


# What pages are meant to take at most, ms. The first chart's is what imgd promises; the first rows of a table are the
# same to who opens a page. Above 50 ms browsers speak of a long task (W3C Long Tasks): a stall. An answer to a key is
# felt as immediate within 100 ms (RAIL); the filter of the table waits for a pause in the typing before, of 150 ms.
GOALS = {"first chart": 300, "first rows": 300, "longest stall": 50, "filter": 150 + 100, "search": 100}


def page_goal(what: str) -> str:
    return next((f"at most {goal}" for part, goal in GOALS.items() if part in what), "")


def pages(runs: int, reports: int, jobs: int) -> list[Case]:
    """Times in Chromium, of jobs with long curves, which are written into metrics.db while imgd is down, and of another
    imgd's table of many jobs; both serve HTTPS, as imgd does where nothing else was asked for."""
    dist = os.environ.get("IMGD_WEB_OUT", str(BIN.parent / "web/dist"))
    deps = Path(os.environ.get("IMGD_DEPS", ROOT / ".deps"))
    with tempfile.TemporaryDirectory(dir=os.environ.get("IMGD_BENCH_DIR")) as text, job_table(jobs, tls=True) as table:
        root = Path(text)
        daemon = Daemon(root, tls=True)
        for number in range(runs):
            report_job(daemon, number)
        daemon.end()
        subprocess.run([BIN / "history_bench", root / "imgd", str(runs), str(reports)], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        daemon = Daemon(root, tls=True)
        try:
            done = subprocess.run(
                [deps / "node/bin/node", ROOT / "web/dev/times.ts", daemon.base, str(runs), table.base, str(jobs)],
                check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "IMGD_WEB_OUT": dist})  # fmt: skip
        finally:
            daemon.end()
    times: dict[str, list[float]] = json.loads(done.stdout)
    long = f"{reports:,} points a run: "
    return [Case(f"Chromium by HTTPS: {long if 'run' in what or 'chart' in what else ''}{what}", "ms", "lower",
                 {"imgd": functools.partial(Charts.next, values)}, page_goal(what))
            for what, values in times.items()]  # fmt: skip


def size() -> list[Case]:
    """As the build measures it, which refuses more: each file by gzip's best (web/embed.ts)."""
    embedded = [Path(os.environ.get("IMGD_WEB_OUT", str(BIN.parent / "web/dist"))), ROOT / "docs/runbooks"]
    files = [file for folder in embedded for file in folder.rglob("*") if file.is_file()]
    kilobytes = sum(len(gzip.compress(file.read_bytes(), 9)) for file in files) / 1000
    return [Case("the dashboard with its runbooks, compressed", "KB", "lower", {"imgd": lambda: kilobytes},
                 "at most 100", passes=1)]  # fmt: skip


MANY = """\
name: many
data: {{train: /data/train}}
resources: {{nodes: 2}}
sweep:
  random: {{n: {count}, params: {{resources.nodes: {{choice: [2, 4, 8, 16, 32]}}, priority: {{int_uniform: [0, 99]}}}}}}
"""


class JobTable:
    """A queue of many jobs, listed as the dashboard does it: pages of 1,000, one after the other."""

    def __init__(self, daemon: Daemon, count: int) -> None:
        self.base, self.connection, self.count = daemon.base, daemon.connection, count

    def page(self, token: str = "") -> tuple[list[Any], str]:
        self.connection.request("GET", f"/api/v1/jobs?page_size=1000&page_token={token}")
        answer = json.loads(self.connection.getresponse().read())
        return answer["jobs"], answer["next_page_token"]

    def first(self) -> float:
        begin = time.monotonic()
        self.page()
        return (time.monotonic() - begin) * 1e3

    def whole(self) -> float:
        begin = time.monotonic()
        jobs, token = self.page()
        listed = len(jobs)
        while token:
            jobs, token = self.page(token)
            listed += len(jobs)
        if listed != self.count:
            raise SystemExit(f"{listed} jobs of {self.count} were listed")
        return (time.monotonic() - begin) * 1e3

    def cases(self) -> list[Case]:
        what = f"a list of {self.count:,} jobs"
        return [Case(f"{what}: the first 1,000", "ms", "lower", {"imgd": self.first}),
                Case(f"{what}: all of them", "ms", "lower", {"imgd": self.whole})]  # fmt: skip


@contextlib.contextmanager
def job_table(count: int, tls: bool = False) -> Iterator[JobTable]:
    with tempfile.TemporaryDirectory() as text:
        root = Path(text)
        daemon = Daemon(root, tls)
        try:
            (root / "many.yaml").write_text(MANY.format(count=count))
            subprocess.run([BIN / "imgcli", "--server", f"127.0.0.1:{daemon.port}", "submit", root / "many.yaml"],
                           check=True, stdout=subprocess.DEVNULL)  # fmt: skip
            yield JobTable(daemon, count)
        finally:
            daemon.end()


@contextlib.contextmanager
def long_log(size: int) -> Iterator[LogCalls]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("IMGD_BENCH_DIR")) as text:
        root = Path(text)
        daemon = Daemon(root)
        job = report_job(daemon, 0)
        daemon.end()
        lines = write_log(root / "imgd", int(job), size)
        daemon = Daemon(root)
        try:
            yield LogCalls(daemon.web, job, lines, next((root / "imgd/logs" / job).glob("*/0.log")))
        finally:
            daemon.end()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listeners", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--chart-runs", type=int, default=50)  # of 23 figures: more than 10^8 points
    parser.add_argument("--reports", type=int, default=100_000)
    parser.add_argument("--long-runs", type=int, default=5)
    parser.add_argument("--long-reports", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--log-bytes", type=int, default=1_000_000_000)
    parser.add_argument("--only", choices=["pages", "charts", "listeners", "jobs", "logs", "size"])
    arguments = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    only = arguments.only
    cases = listeners(arguments.listeners) if only in (None, "listeners") else []
    if only in (None, "charts"):
        cases += Charts(arguments.chart_runs, arguments.reports).cases()
        cases += Charts(arguments.long_runs, arguments.long_reports).cases()
    if only in (None, "pages"):
        cases += pages(arguments.runs, arguments.reports, arguments.jobs)
    if only in (None, "size"):
        cases += size()
    rows = measure(cases)
    if only in (None, "jobs"):
        with job_table(arguments.jobs) as table:
            rows += measure(table.cases())
    if only in (None, "logs"):
        with long_log(arguments.log_bytes) as calls:
            rows += measure(calls.cases(f"{arguments.log_bytes / 1e9:g} GB"))
    finish("web", rows, keep=only is not None)


if __name__ == "__main__":
    main()
