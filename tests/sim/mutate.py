"""`./run sim --mutants`: puts each fault of mutants.py into a copy of the core, and says which rule finds it.

A copy of the one changed source lies in build/mutants/, is compiled with the release build's own command and linked
with the simulator; the tree is not touched. The table goes to README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from mutants import CORE, MUTANTS, REPLACED, Mutant, changed_source

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
OUT = ROOT / "build/mutants"
README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- table of mutants: written by ./run sim --mutants -->", "<!-- end of the table -->"
SEEDS = 2000
TIMEOUT = 1800
MISSED, UNKNOWN = "no seed", "?"


def compile_command(source: Path, target: Path) -> list[str]:
    """As the release build compiles the core, of one source alone."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if "imgd_core.dir" in entry["command"]:
            words = [*shlex.split(entry["command"]), "-w"]
            words[words.index("-o") + 1] = str(target)
            words[words.index("-c") + 1] = str(source)
            return [word for word in words if word != "-Werror"]
    raise SystemExit("run: sim: build/release does not know the core")


def link_command(objects: list[Path], target: Path) -> list[str]:
    """As the release build links the simulator, with these objects in place of the core's library."""
    printed = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", "bin/sim"], check=True, capture_output=True,
                             text=True).stdout.splitlines()[-1]  # fmt: skip
    words = [word for word in shlex.split(printed) if word not in (":", "&&")]
    words[words.index("-o") + 1] = str(target)
    core = words.index("server/libimgd_core.a")
    words[core : core + 1] = [str(part) for part in objects]
    return words


def build(command: list[str]) -> None:
    done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"run: sim: {shlex.join(command)} failed:\n{done.stderr}")


def object_of(source: Path, target: Path) -> Path:
    newest = max(path.stat().st_mtime for path in [source, *source.parent.glob("*.h")])
    if not target.exists() or target.stat().st_mtime < newest:
        build(compile_command(source, target))
    return target


def program(mutant: Mutant, number: int) -> Path:
    changed = OUT / f"{number}-{mutant.file}"
    changed.write_text(changed_source(mutant))
    objects = [OUT / "base" / f"{other.stem}.o" for other in core_sources() if other.name != mutant.file]
    build(compile_command(changed, OUT / f"{number}.o"))
    build(link_command([OUT / f"{number}.o", *objects], OUT / f"sim-{number}"))
    return OUT / f"sim-{number}"


def core_sources() -> list[Path]:
    return [path for path in sorted(CORE.glob("*.cc")) if not path.name.endswith("_test.cc")]


def verdict(simulator: Path) -> tuple[str, str]:
    """Which seed finds it, and the rule; of one that nothing finds MISSED; what has no answer is no find."""
    try:
        done = subprocess.run([simulator, "--seeds", str(SEEDS)], capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return UNKNOWN, f"no answer within {TIMEOUT} s"
    found = re.search(r'seed (\d+) breaks "([^"]+)"', done.stdout)
    if found:
        return found[1], found[2]
    if crashed := re.search(r"seed (\d+) (crashes|never ends)", done.stderr):
        return crashed[1], "a crash" if crashed[2] == "crashes" else "a life that never ends"
    return (MISSED, "") if done.returncode == 0 else (UNKNOWN, f"exit code {done.returncode}")


def try_one(number: int, mutant: Mutant) -> tuple[str, str]:
    simulator = program(mutant, number)
    found = verdict(simulator)
    simulator.unlink()
    return found


OLD = "not tried anew; before: "


def rows_before(readme: str) -> dict[str, tuple[str, str]]:
    """Seed and rule by mutant, as the table has them that is there."""
    rows = [line.strip("| ").split(" | ") for line in readme.split(BEGIN)[1].split(END)[0].splitlines()]
    return {row[0]: (row[2].removeprefix(OLD), row[3]) for row in rows if len(row) == 4}


def table(results: dict[str, list[str]], before: dict[str, tuple[str, str]]) -> str:
    lines = [f"Each mutant lived {SEEDS:,} seeds, or until one broke a rule.", "",
             "| mutant | file | found by seed | by the rule |", "| --- | --- | --- | --- |"]  # fmt: skip
    for mutant in MUTANTS:
        if mutant.name in results:
            seed, rule = results[mutant.name]
        elif mutant.name in before:
            seed, rule = OLD + before[mutant.name][0], before[mutant.name][1]
        else:
            seed, rule = "not tried", ""
        lines.append(f"| {mutant.name} | {mutant.file} | {seed} | {rule} |")
    tried = [results[mutant.name] for mutant in MUTANTS if mutant.name in results]
    missed = sum(seed in (MISSED, UNKNOWN) for seed, _ in tried)
    rest = len(MUTANTS) - len(tried)
    more = f"; {rest} more were not tried anew (`./run sim --mutants --untried` goes on)" if rest else ""
    lines += ["", f"{len(tried)} mutants tried until {date.today()}, {len(tried) - missed} found{more}."]
    if REPLACED:
        lines += ["", "Replaced, since nothing could be seen of them:", ""]
        lines += [f"- {name}: {why}" for name, why in REPLACED]
    return "\n".join(lines)


def write_readme(results: dict[str, list[str]]) -> None:
    text = README.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n{table(results, rows_before(text))}\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run sim --mutants")
    parser.add_argument("--only", default="", help="mutants whose name has this text; the others keep their results")
    parser.add_argument("--part", default="1/1", help="K/N: the K-th of N parts of the list")
    parser.add_argument("--untried", action="store_true", help="only those that have no result yet")
    arguments = parser.parse_args()
    (OUT / "base").mkdir(parents=True, exist_ok=True)
    workers = ThreadPoolExecutor(os.cpu_count())
    list(workers.map(lambda source: object_of(source, OUT / "base" / f"{source.stem}.o"), core_sources()))
    kept = OUT / "results.json"
    results: dict[str, list[str]] = json.loads(kept.read_text()) if kept.exists() else {}
    part, parts = (int(number) for number in arguments.part.split("/"))
    chosen = [(number, mutant) for number, mutant in enumerate(MUTANTS)
              if arguments.only in mutant.name and number % parts == part - 1
              and not (arguments.untried and mutant.name in results)]  # fmt: skip
    for (_, mutant), result in zip(chosen, workers.map(lambda item: try_one(*item), chosen), strict=True):
        results[mutant.name] = list(result)
        print(f"{mutant.name}: {': '.join(result)}", flush=True)
        kept.write_text(json.dumps(results, indent=1))
    write_readme(results)
    tried = [results[mutant.name][0] for mutant in MUTANTS if mutant.name in results]
    return 1 if MISSED in tried or UNKNOWN in tried else 0


if __name__ == "__main__":
    sys.exit(main())
