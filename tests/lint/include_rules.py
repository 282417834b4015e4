#!/usr/bin/env python3
"""Which part may include which: the arrows of ARCHITECTURE.md, checked over the graph of all sources.

A rule is (folder, what none of its files may reach, why). What a file reaches are its includes, those of the project's
headers among them, and so on; an error shows the way. A file is bound by the rules of all folders that it is in.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

OUTSIDE_WORLD = (
    # Other libraries, the contracts, the network, the operating system.
    r"grpc|google/|imgd/v1/|sqlite|SQLiteCpp|boost/(?!container/)|curl/|openssl/|nlohmann/|spdlog/|"
    r"^(sys|net|netinet|arpa|linux|asm)/|^(netdb|unistd|fcntl|poll|pthread|semaphore|sched|signal|spawn|dirent|dlfcn|time)\.h|"
    r"^(csignal|ctime|cstdlib|fstream|iostream|stdio\.h|cstdio)>|"
    # Threads and what they share.
    r"^(thread|mutex|shared_mutex|condition_variable|future|atomic|semaphore|latch|barrier|stop_token|coroutine)>|"
    # What gives other values, or another order, in another run.
    r"^(random|unordered_map|unordered_set)>"
)
# The same that needs no header of its own.
CLOCKS = re.compile(r"_clock::now\(|\b(getenv|rand|srand|sleep_for|sleep_until|time|clock_gettime)\(")
RULES: list[tuple[str, str, str]] = [
    ("common/", r"^(server|agent|trainer|cli)/|grpc|torch/", "common is below every program"),
    ("server/", r"^(agent|trainer|cli)/|torch/", "programs never include one another"),
    ("server/core/", rf"^server/(?!core/)|{OUTSIDE_WORLD}", "the core is pure"),
    ("agent/", r"^(server|trainer|cli)/|torch/|sqlite", "programs never include one another"),
    ("cli/", r"^(server|agent)/|^trainer/(?!data/)|torch/", "the client may link trainer/data/ and nothing else"),
    ("trainer/", r"^(server|agent|cli)/|grpc", "the trainer does not link gRPC"),
    ("trainer/data/", r"^trainer/(?!data/)|torch/|ATen|c10/", "trainer/data/ stands alone, without LibTorch"),
    ("trainer/report/", r"torch/|ATen|c10/", "no file sees both torch's and the system's protobuf"),
]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+[">])', re.MULTILINE)


def includes_of(source: str) -> list[tuple[str, int]]:
    """What stands in the source's include lines, its closing sign included, and the line."""
    return [(m[1], source.count("\n", 0, m.start()) + 1) for m in INCLUDE.finditer(source)]


def ways_from(path: str, graph: dict[str, list[tuple[str, int]]]) -> dict[str, tuple[int, list[str]]]:
    """All that the file reaches: the line of its own where the way begins, and the headers on the way."""
    found: dict[str, tuple[int, list[str]]] = {}
    ahead: list[tuple[str, int, list[str]]] = [(name, line, []) for name, line in graph[path]]
    while ahead:
        name, line, way = ahead.pop(0)
        if name in found:
            continue
        found[name] = (line, way)
        header = name[:-1]
        ahead += [(further, line, [*way, header]) for further, _ in graph.get(header, [])]
    return found


def errors_of(sources: dict[str, str]) -> list[str]:
    graph = {path: includes_of(source) for path, source in sources.items()}
    errors = []
    for path in graph:
        # A test of the core is a program like any other.
        is_test = path.endswith("_test.cc") or "/testing/" in path
        rules = [r for r in RULES if path.startswith(r[0]) and not (is_test and r[0] == "server/core/")]
        if path.startswith("trainer/") and not path.startswith("trainer/report/"):
            rules.append(("", r"^imgd/v1/", "protobuf stays in trainer/report/"))
        for name, (line, way) in ways_from(path, graph).items():
            shown = f"{name[:-1]} through {' and '.join(way)}" if way else name[:-1]
            errors += [f"{path}:{line}: includes {shown}: {why}" for _, no, why in rules if re.search(no, name)]
    return errors + [error for path, source in sources.items() for error in clocks_in(path, source)]


def clocks_in(path: str, source: str) -> list[str]:
    if not path.startswith("server/core/") or path.endswith("_test.cc") or "/testing/" in path:
        return []
    code = re.sub(r"//[^\n]*", "", source)
    return [f"{path}:{code.count(chr(10), 0, m.start()) + 1}: asks {m[0]}...): the core is pure"
            for m in CLOCKS.finditer(code)]  # fmt: skip


def main() -> int:
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.cc", "*.h"], check=True,
                             capture_output=True, text=True)  # fmt: skip
    paths = [Path(line) for line in listing.stdout.splitlines()]
    errors = errors_of({str(path): path.read_text(encoding="utf-8") for path in paths if path.exists()})
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
