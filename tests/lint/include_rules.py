#!/usr/bin/env python3
"""Which part may include which: the arrows of ARCHITECTURE.md, checked on every source file.

A rule is (folder, what it may not include). The longest matching folder's rules add up with its parents'.
"""

from __future__ import annotations

import re
import subprocess
import sys

OUTSIDE_WORLD = (
    r"grpc|google/|imgd/v1/|sqlite|SQLiteCpp|sys/|unistd|fcntl|poll\.h|boost/|"
    r"thread>|mutex>|condition_variable|random>|unordered_"
)
RULES: list[tuple[str, str, str]] = [
    ("common/", r"^(server|agent|trainer|cli)/|grpc|torch/", "common is below every program"),
    ("server/", r"^(agent|trainer|cli)/|torch/", "programs never include one another"),
    ("server/core/", rf"^server/(store|rpc|web|cloud)/|{OUTSIDE_WORLD}", "the core is pure"),
    ("agent/", r"^(server|trainer|cli)/|torch/|sqlite", "programs never include one another"),
    ("cli/", r"^(server|agent)/|^trainer/(?!data/)|torch/", "the client may link trainer/data/ and nothing else"),
    ("trainer/", r"^(server|agent|cli)/|grpc", "the trainer does not link gRPC"),
    ("trainer/data/", r"^trainer/(?!data/)|torch/|ATen|c10/", "trainer/data/ stands alone, without LibTorch"),
    ("trainer/report/", r"torch/|ATen|c10/", "no file sees both torch's and the system's protobuf"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+[">])')


def main() -> int:
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.cc", "*.h"], check=True,
                             capture_output=True, text=True)  # fmt: skip
    errors = []
    for path in listing.stdout.split():
        is_test = path.endswith("_test.cc") or "/testing/" in path
        with open(path, encoding="utf-8") as source:
            for number, line in enumerate(source, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                for folder, forbidden, why in RULES:
                    if not path.startswith(folder) or (is_test and folder == "server/core/"):
                        continue
                    if re.search(forbidden, match[1]):
                        errors.append(f"{path}:{number}: includes {match[1][:-1]}: {why}")
                if path.startswith("trainer/") and "imgd/v1/" in match[1] and not path.startswith("trainer/report/"):
                    errors.append(f"{path}:{number}: includes {match[1][:-1]}: protobuf stays in trainer/report/")
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
