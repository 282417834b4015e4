#!/usr/bin/env python3
"""Writes a lock file: every wheel that a set of requirements resolves to, with its version and hashes.

usage: relock.py OUT [--beside LOCK] REQUIREMENT...

Resolves with the running interpreter's pip for each Python that a supported system has (Debian 12: 3.11,
Ubuntu 24.04: 3.12), so that one file serves both. Versions must agree between them; hashes are merged.
What LOCK has already is left out: it is installed beside.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHONS = ("3.11", "3.12")
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in range(28, 4, -1)] + [
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
]
SKIP = {"setuptools", "triton"}  # not needed to build against LibTorch, nor to import torch


def resolve(requirements: list[str], python: str) -> dict[str, tuple[str, set[str]]]:
    """Name -> (version, sha256 hashes) as pip would install it for one Python version."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        platforms = [flag for p in PLATFORMS for flag in ("--platform", p)]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
                   "--target", f"{scratch}/t", "--only-binary=:all:", "--python-version", python, *platforms,
                   "--report", str(report), *requirements]  # fmt: skip
        subprocess.run(command, check=True)
        found = json.loads(report.read_text())["install"]
    out = {}
    for item in found:
        name = item["metadata"]["name"].lower().replace("_", "-")
        if name in SKIP:
            continue
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        out[name] = (item["metadata"]["version"], {digest})
    return out


def main() -> None:
    out, requirements = Path(sys.argv[1]), sys.argv[2:]
    beside: set[str] = set()
    if requirements[0] == "--beside":
        beside = set(re.findall(r"^([a-z0-9.-]+)=", Path(requirements[1]).read_text(), re.MULTILINE))
        del requirements[:2]
    merged: dict[str, tuple[str, set[str]]] = {}
    for python in PYTHONS:
        for name, (version, hashes) in resolve(requirements, python).items():
            if name in beside:
                continue
            known = merged.setdefault(name, (version, set()))
            if known[0] != version:
                raise SystemExit(f"{name}: {known[0]} and {version} for different Pythons; pin it")
            known[1].update(hashes)
    lines = [f"# Made by deps/relock.py from: {' '.join(requirements)}"]
    for name, (version, hashes) in sorted(merged.items()):
        operator = "===" if name == "torch" else "=="
        lines.append(" \\\n    ".join([f"{name}{operator}{version}", *(f"--hash=sha256:{h}" for h in sorted(hashes))]))
    out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
