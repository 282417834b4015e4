"""deploy/prometheus: what is handed out works, every alert has a page, and its tests would notice a wrong one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/prometheus"
# Where scripts/setup.sh puts it; else the machine's own.
PROMTOOL = shutil.which("promtool", path=f"{ROOT}/.deps/prometheus/usr/bin:{os.environ['PATH']}")
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


def promtool(*args: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROMTOOL), *args], cwd=folder, capture_output=True, text=True, timeout=120)


@needs_promtool
def test_prometheus_takes_the_configuration_and_the_alerts_pass_their_tests(tmp_path: Path) -> None:
    """With what lies beside it where it is used: the token and the CA's certificate."""
    folder = shutil.copytree(FOLDER, tmp_path / "prometheus")
    for beside in ("imgd.token", "imgd-ca.crt"):
        (folder / beside).touch()
    for args in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        done = promtool(*args, folder=folder)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_says_what_who_and_where_to_read_on() -> None:
    assert len(ALERTS) >= 12
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)
    for alert in ALERTS:
        assert alert["labels"]["severity"] in ("critical", "warning", "info"), alert
        assert {"summary", "description", "runbook_url"} == set(alert["annotations"]), alert
        url = alert["annotations"]["runbook_url"]
        assert url == f"{{{{ $externalLabels.imgd_url }}}}/runbooks/{alert['alert']}.md"
        page = ROOT / f"docs/runbooks/{alert['alert']}.md"
        text = page.read_text()
        assert text.startswith(f"# {alert['alert']}\n"), page
        assert all(f"\n## {heading}\n" in text for heading in ("What it means", "How to look", "What to do")), page
    assert {path.stem for path in (ROOT / "docs/runbooks").glob("*.md")} == {alert["alert"] for alert in ALERTS}


def test_words_are_looked_for_where_they_are_printed() -> None:
    """Why a node takes nothing new is in -o wide alone; an Xid is told of a node's devices."""
    for alert in ALERTS:
        if alert["alert"] not in ("NodeSick", "NodeSetAsideByImgd", "GpuXidErrors"):
            continue
        text = alert["annotations"]["description"] + (ROOT / f"docs/runbooks/{alert['alert']}.md").read_text()
        assert not re.search("imgcli nodes(?! -o wide)", text), alert["alert"]


def test_every_alert_is_brought_about_in_a_live_cluster() -> None:
    tests = "".join((ROOT / f"tests/e2e/{name}.py").read_text() for name in ("test_alerts", "test_prometheus"))
    # Not where it is named only as one that does not fire.
    tests, sets = re.subn(r"^NOT_CAUSED = \{[^}]*\}", "", tests, flags=re.MULTILINE)
    assert sets == 1
    tests = "".join(line for line in tests.splitlines(keepends=True) if " not " not in line)
    missing = [alert["alert"] for alert in ALERTS if f'"{alert["alert"]}"' not in tests]
    assert missing == [], "each needs a test that causes it, and sees it fire"


@needs_promtool
@pytest.mark.parametrize("wrong", ["vector(0) > 1", "vector(1)"], ids=["never", "always"])
def test_an_alert_that_never_or_always_fires_fails_its_test(wrong: str, tmp_path: Path) -> None:
    text = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())
    rules = [rule for group in text["groups"] for rule in group["rules"]]
    for rule in rules:
        right, rule["expr"] = rule["expr"], wrong
        (tmp_path / "alerts.yml").write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [rule]}]}))
        rule["expr"] = right
        its = [test for test in tests["tests"] if test["name"].split(",")[0] == rule["alert"]]
        assert len(its) == 1, rule["alert"]
        (tmp_path / "alerts_test.yml").write_text(yaml.safe_dump({**tests, "tests": its}))
        assert promtool("test", "rules", "alerts_test.yml", folder=tmp_path).returncode != 0, rule["alert"]
