#!/usr/bin/env python3
"""The rules that proto/ keeps: Buf's STANDARD layout and names, and a comment on every field, value and method.

usage: proto_rules.py PROTO_FOLDER
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FIELD = re.compile(r"^(?:optional |repeated )?[\w.]+ (\w+) = \d+;$")
VALUE = re.compile(r"^([A-Z0-9_]+) = (\d+);$")
RPC = re.compile(r"^rpc (\w+)\((?:stream )?(\w+)\) returns \((?:stream )?(\w+)\)[;{]")
BLOCK = re.compile(r"^(message|enum|service|oneof) (\w+) \{(\})?$")


def upper_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


class File:
    """One .proto file, read line by line."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.errors: list[str] = []
        self.blocks: list[tuple[str, str]] = []
        self.previous = ""
        self.folder_package = ".".join(path.relative_to(root).parent.parts)

    def error(self, number: int, text: str) -> None:
        self.errors.append(f"{self.path}:{number}: {text}")

    def read(self) -> list[str]:
        lines = self.path.read_text().splitlines()
        if f"package {self.folder_package};" not in lines:
            self.error(1, f"the package must be {self.folder_package}, as the folder")
        for number, raw in enumerate(lines, 1):
            line = raw.strip()
            self.line(number, line)
            self.previous = line
        return self.errors

    def commented(self) -> bool:
        return self.previous.startswith("//")

    def line(self, number: int, line: str) -> None:
        if block := BLOCK.match(line):
            kind, name, closed = block.groups()
            if kind != "oneof" and not re.fullmatch(r"([A-Z][a-z0-9]*)+", name):
                self.error(number, f"{kind} {name} is not in PascalCase")
            if kind == "service" and not name.endswith("Service"):
                self.error(number, f"service {name} must end in Service")
            if kind in ("enum", "service") and not self.commented():
                self.error(number, f"{kind} {name} has no comment")
            if not closed:
                self.blocks.append((kind, name))
        elif line == "}":
            if self.blocks:
                self.blocks.pop()
        elif self.blocks:
            self.member(number, line)

    def member(self, number: int, line: str) -> None:
        kind, block = self.blocks[-1]
        if kind == "enum" and (value := VALUE.match(line)):
            name, tag = value.groups()
            prefix = upper_snake(block) + "_"
            if not name.startswith(prefix):
                self.error(number, f"{name} must begin with {prefix}")
            if tag == "0" and name != f"{prefix}UNSPECIFIED":
                self.error(number, f"the zero value must be {prefix}UNSPECIFIED")
            if tag != "0" and not self.commented():
                self.error(number, f"{name} has no comment")
        elif kind == "service" and (rpc := RPC.match(line)):
            name, request, response = rpc.groups()
            if (request, response) != (f"{name}Request", f"{name}Response"):
                self.error(number, f"{name} must take {name}Request and return {name}Response")
            if not self.commented():
                self.error(number, f"rpc {name} has no comment")
        elif kind in ("message", "oneof") and (field := FIELD.match(line)):
            if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", field[1]):
                self.error(number, f"field {field[1]} is not in snake_case")
            if kind == "message" and not self.commented():
                self.error(number, f"field {field[1]} has no comment")


def main() -> int:
    root = Path(sys.argv[1])
    files = sorted(root.rglob("*.proto"))
    if not files:
        print(f"no .proto files below {root}", file=sys.stderr)
        return 1
    # What others have defined keeps their names.
    own = [path for path in files if path.relative_to(root).parts[0] == "imgd"]
    errors = [error for path in own for error in File(path, root).read()]
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
