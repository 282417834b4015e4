"""How each source is compiled, for clang-tidy: the build compiles several at once, which is taken apart here.

usage: compile_commands.py BUILD OUT    reads BUILD/compile_commands.json, writes OUT/compile_commands.json
"""

import json
import re
import sys
from pathlib import Path

Entry = dict[str, str]


def sources_of(entry: Entry) -> list[Entry]:
    """The entry, or one for each source that its file includes and that is compiled with it."""
    file = Path(entry["file"])
    if "/Unity/" not in entry["file"]:
        return [entry]
    included = re.findall(r'^#include "(.*)"', file.read_text(), re.MULTILINE)
    return [entry | {"file": source, "command": entry["command"].replace(entry["file"], source)} for source in included]


def main(build: Path, out: Path) -> None:
    entries = json.loads((build / "compile_commands.json").read_text())
    out.mkdir(parents=True, exist_ok=True)
    taken_apart = [source for entry in entries for source in sources_of(entry)]
    (out / "compile_commands.json").write_text(json.dumps(taken_apart, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
