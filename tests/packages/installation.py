"""imgd, installed from its packages on a machine of its own, for the tests of this folder one after the other:
test_packages.py installs, test_services.py looks at what runs, test_uninstall.py removes it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BIN, ROOT
from machine import Machine, make_root, what_lacks
from steps import NEW, OLD, RUNTIME, field, newer_programs, pack


@pytest.fixture(scope="session")
def debs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if missing := what_lacks():
        pytest.skip(missing)
    return pack(tmp_path_factory.mktemp("debs"), f"{OLD}~test1")


@pytest.fixture(scope="session")
def newer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    programs = newer_programs(tmp_path_factory.mktemp("programs"))
    return pack(tmp_path_factory.mktemp("newer"), f"{NEW}~test2", programs)


@pytest.fixture(scope="session")
def runtime() -> Iterator[Path]:
    """What the runtime's package has, of links to the wheels' files: what is left out there is not here either."""
    with tempfile.TemporaryDirectory(dir=BIN.parents[1], prefix="runtime-") as folder:
        Path(folder).chmod(0o755)
        subprocess.run([ROOT / "scripts/package.sh", "--runtime-tree", folder], check=True)
        yield Path(folder)


@pytest.fixture(scope="session")
def machine(
    debs: dict[str, Path], newer: dict[str, Path], runtime: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """With what the packages depend on, and none of them. All is packed before: what follows is timed."""
    assert newer
    root = tmp_path_factory.mktemp("machine") / "root"
    try:
        make_root(root)
        with Machine(root, shared=runtime) as machine:
            machine.run("apt-get", "update", network=True)
            needs = [re.sub(rf"{RUNTIME} \([^)]*\),? ?", "", field(deb, "Depends")) for deb in debs.values()]
            machine.run(
                "apt-get", "satisfy", "-y", "--no-install-recommends", ", ".join(filter(None, needs)), network=True
            )
            yield machine
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def before(machine: Machine) -> tuple[set[str], dict[str, str]]:
    """Files and accounts of the machine as it was."""
    return machine.files(), machine.accounts()


@pytest.fixture(scope="session")
def began() -> dict[str, float]:
    """When things began, by their names; seconds of the monotonic clock."""
    return {}
