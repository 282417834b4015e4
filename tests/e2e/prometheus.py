"""A real Prometheus beside a cluster, configured by what deploy/prometheus has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from harness import ROOT, Cluster, free_port, wait_for

# Where scripts/setup.sh puts it; else the machine's own.
_PATH = f"{ROOT}/.deps/prometheus/usr/bin:{os.environ['PATH']}"
PROGRAM = shutil.which("prometheus", path=_PATH)
PROMTOOL = shutil.which("promtool", path=_PATH)


def over_plain_http(config: str) -> str:
    """As the file says how, for an imgd with web.plain_http and no tokens."""
    lines = [line for line in config.splitlines() if not line.strip().startswith(("tls_config:", "authorization:"))]
    return "\n".join(lines).replace("scheme: https", "scheme: http").replace("https://", "http://") + "\n"


class Prometheus:
    """Scrapes the cluster until `close`. Its configuration is the one that is handed out, but for imgd's port and how
    often it scrapes, where that is given; by TLS and with a token where the cluster's web server wants that."""

    def __init__(self, cluster: Cluster, rules: str, every: str = "") -> None:
        folder = cluster.root / "prometheus"
        folder.mkdir()
        config = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
        assert config.count("127.0.0.1:7651") == 4
        if "--web-plain-http" in cluster.server_args:
            config = over_plain_http(config)
        else:
            shutil.copy(cluster.root / "imgd/ca.crt", folder / "imgd-ca.crt")
            token = cluster.cli("token", "create", "--scope", "view", "--name", "prometheus").stdout
            (folder / "imgd.token").write_text(token)
        if every:
            config = config.replace("scrape_interval: 5s", f"scrape_interval: {every}")
            config = config.replace("scrape_timeout: 4s", f"scrape_timeout: {every}")
        (folder / "prometheus.yml").write_text(config.replace("127.0.0.1:7651", f"127.0.0.1:{cluster.web_port}"))
        (folder / "alerts.yml").write_text(rules)
        self.port = free_port()
        command = [str(PROGRAM), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                   f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"]  # fmt: skip
        with (cluster.root / "prometheus.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for("Prometheus to be ready", self._ready, 60)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What the expression is now: series with `metric` and `value`. An erroneous one raises HTTPError."""
        result: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return result

    def value(self, expression: str) -> float | None:
        """Of an expression with one series; nothing while it has none."""
        result = self.query(expression)
        assert len(result) <= 1, result
        return float(result[0]["value"][1]) if result else None

    def label_values(self, selector: str, label: str) -> set[str]:
        return {series[label] for series in self._get("series", **{"match[]": selector}) if label in series}

    def firing(self) -> set[str]:
        return {series["metric"]["alertname"] for series in self.query('ALERTS{alertstate="firing"}')}

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def rules_without_patience(window: str = "") -> str:
    """The alerts as they are, but that they fire at once; and that those over minutes look at `window`, where given."""
    text = (ROOT / "deploy/prometheus/alerts.yml").read_text()
    if window:
        text = re.sub(r"(\[|offset )\d+m", rf"\g<1>{window}", text)
    return "\n".join(line for line in text.splitlines() if not line.strip().startswith("for: ")) + "\n"


def complaints_of(metrics: str) -> str:
    """What promtool has to say of a page of metrics; empty when it finds nothing."""
    assert PROMTOOL
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=metrics, text=True, capture_output=True, timeout=60)
    said = done.stdout + done.stderr
    return said or (f"exit status {done.returncode}" if done.returncode else "")


def dashboards() -> list[Path]:
    return sorted((ROOT / "deploy/grafana/dashboards").glob("*.json"))
