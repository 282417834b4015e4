"""What the benchmarks make of what they saw: pure functions, on things made up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import gpu
import page
import report
import train
import watch


def kernel(start: float, duration: float) -> dict[str, object]:
    return {"ph": "X", "cat": "kernel", "name": "sgemm", "ts": start, "dur": duration}


def test_a_gpu_is_idle_where_no_stream_has_a_kernel() -> None:
    trace = {"traceEvents": [kernel(100, 10), kernel(105, 15), kernel(107, 2), kernel(150, 50),
                             {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 1000},
                             {"ph": "X", "cat": "gpu_memcpy", "name": "HtoD", "ts": 120, "dur": 30},
                             {"ph": "M", "name": "process_name"}]}  # fmt: skip
    assert gpu.idle_share(trace) == pytest.approx(30 / 100)
    assert gpu.idle_share({"traceEvents": [kernel(1, 2)]}) == 0
    with pytest.raises(ValueError, match="no kernels"):
        gpu.idle_share({"traceEvents": []})


def test_the_share_of_the_peak_is_by_the_chips_data_sheet() -> None:
    # 24.5 GFLOP for each image: 3,000 images a second are 73.6 TFLOPS of 312.
    assert gpu.share_of_peak("NVIDIA A100-SXM4-80GB", "resnet50", 3000) == pytest.approx(0.236, abs=0.001)
    h100 = gpu.share_of_peak("NVIDIA H100 80GB HBM3", "resnet50", 3000)
    pcie = gpu.share_of_peak("NVIDIA H100 PCIe", "resnet50", 3000)
    assert h100 and pcie and pcie / h100 == pytest.approx(989 / 756), "the longer name is looked for first"
    assert gpu.share_of_peak("NVIDIA L40S", "resnet50", 1) != gpu.share_of_peak("NVIDIA L4", "resnet50", 1)
    assert gpu.share_of_peak("GeForce GT 710", "resnet50", 3000) is None


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU")
def test_what_needs_a_gpu_is_said_not_to_be_measured_where_there_is_none() -> None:
    done = subprocess.run([sys.executable, train.__file__, "--gpu"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no GPU here; not measured: rn50-224px-b256-bf16\n"


def test_a_run_without_a_gpu_ends_with_what_it_did_not_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: list[object] = []
    monkeypatch.setattr(sys, "argv", ["train.py", "--only", "each 100 steps"])
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    monkeypatch.setattr(train, "measure", lambda cases: [{"case": case.name} for case in cases])
    monkeypatch.setattr(train, "finish", lambda *args, **_: kept.append(args))
    train.main()
    note = train.CHECKPOINT_NOTE
    assert kept == [("train", [{"case": "rn50-96px-b16-fp32 a checkpoint each 100 steps", "note": note}])]
    assert capsys.readouterr().out.splitlines()[-1].startswith("not measured: rn50-224px-b256-bf16 on a GPU")


def test_words_that_no_case_has_are_told_with_the_names_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--only", "rn19"])
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    with pytest.raises(SystemExit, match="no case has 'rn19' in its name; there are:\n  rn18-64px"):
        train.main()


def test_rows_of_another_day_are_not_dated_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report, "ROOT", tmp_path)

    def rows(*names: str) -> list[dict[str, Any]]:
        return [{"case": name, "subject": "imgd", "unit": "s", "value": 1.0, "min": 1.0, "max": 1.0} for name in names]

    def written() -> dict[str, Any]:
        found: dict[str, Any] = json.loads((tmp_path / "build/bench/x.json").read_text())
        return found

    report.finish("x", rows("a", "b"))
    report.finish("x", rows("b"), keep=True)
    assert [row["case"] for row in written()["rows"]] == ["a", "b"]
    (tmp_path / "build/bench/x.json").write_text(json.dumps(written() | {"date": "2020-01-01"}))
    report.finish("x", rows("b"), keep=True)
    assert ([row["case"] for row in written()["rows"]], written()["partial"]) == (["b"], True)


def test_memory_is_that_of_a_process_and_of_all_that_it_started(tmp_path: Path) -> None:
    for pid, kib, children in ((1, 2048, "2 3"), (2, 1024, ""), (3, 512, "4"), (4, 512, "5")):
        task = tmp_path / str(pid) / "task" / str(pid)
        task.mkdir(parents=True)
        (task / "children").write_text(children)
        (tmp_path / str(pid) / "smaps_rollup").write_text(f"Rss:  9 kB\nPss:  {kib} kB\nPss_Anon: 1 kB\n")
    assert watch.pss_mib(1, tmp_path) == 4, "process 5 has just ended"


def test_a_goal_stands_beside_ours_and_makes_no_verdict() -> None:
    passes = iter([3.0, 5.0, 4.0, 1.0, 2.0])
    case = report.Case(
        "a", "s", "lower", {"ours": lambda: next(passes), "peer": "none here"}, goal="at most 1", passes=5
    )
    ours, peer = report.measure([case])
    assert (ours["value"], ours["min"], ours["max"], ours["goal"]) == (3.0, 1.0, 5.0, "at most 1")
    assert peer == {"case": "a", "subject": "peer", "unit": "s", "value": None, "why": "none here"}
    assert "| at most 1 |" in page.line(ours, with_goal=True, with_beside=False)


def test_a_goal_may_be_given_by_its_place() -> None:
    assert report.Case("a", "s", "lower", {}, "at most 1").goal == "at most 1"


def test_a_run_of_some_cases_keeps_the_others_and_is_whole_only_where_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "ROOT", tmp_path)

    def finish(cases: str, value: float, keep: bool) -> tuple[bool, dict[str, float]]:
        figures = {"value": value, "min": value, "max": value}
        report.finish("x", [{"case": case, "subject": "ours", "unit": "s", **figures} for case in cases], keep)
        found = json.loads((tmp_path / "build/bench/x.json").read_text())
        return found["partial"], {row["case"]: row["value"] for row in found["rows"]}

    assert finish("a", 1, keep=True) == (True, {"a": 1})
    assert finish("b", 2, keep=True) == (True, {"a": 1, "b": 2})
    assert finish("ac", 3, keep=False) == (False, {"a": 3, "c": 3})
    assert finish("a", 4, keep=True) == (False, {"a": 4, "c": 3})


def test_the_page_says_that_there_are_no_figures_of_gpus_only_where_there_are_none() -> None:
    assert "No figures from GPUs" in page.head(["train", "data"])
    assert "No figures from GPUs" not in page.head(["train", "train-gpu"])


def test_what_was_not_measured_anew_stays_under_its_own_date() -> None:
    def section(date: str, *cases: str) -> str:
        rows = [{"case": case, "subject": s, "unit": "s", "value": 1} for case in cases for s in ("ours", "peer")]
        on = {"cores": 2, "cpu": "a", "memory_gib": 1, "system": "b"}
        return page.section({"date": date, "machine": on, "rows": rows})

    before = section("2026-01-01", "one", "two") + "\n" + section("2025-01-01", "three")
    still = page.kept(before, {"two"})
    assert [line[:10] for line in still.splitlines() if line.startswith("20")] == ["2026-01-01", "2025-01-01"]
    assert "| one | ours |" in still and "| three | peer |" in still and "two" not in still
    assert page.kept(before, {"one", "two"}).startswith("2025-01-01"), "a table without rows goes"
    assert page.kept(before, {"one", "two", "three"}) == "" == page.kept("", {"one"})
