#!/usr/bin/env python3
"""Writes a program's manual page from what its --help, and that of each of its commands, says.

man_pages.py PROGRAM SECTION > PROGRAM.SECTION
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

# What the programs cannot say of themselves.
FILES = {
    "imgd": [("/etc/imgd/imgd.yaml", "Its configuration; each key has a comment there."),
             ("/var/lib/imgd", "The databases, the logs of jobs, the certificate that it made itself.")],
    "imgagent": [("/etc/imgd/agent.yaml", "Its settings; each key has a comment there."),
                 ("/var/lib/imgagent", "Its identity, and the runs on this node with their logs.")],
    "imgcli": [("~/.config/imgd/config.yaml", "server: HOST:PORT, where neither --server nor IMGD_SERVER says it.")],
    "imgtrain": [("/usr/lib/imgd/cu13", "LibTorch and CUDA's libraries.")],
}  # fmt: skip
SEE_ALSO = ["imgd(8)", "imgagent(8)", "imgcli(1)", "imgtrain(1)"]
INTERNAL = {"shim"}


@dataclass
class Section:
    title: str
    lines: list[str] = field(default_factory=list)


@dataclass
class Help:
    about: str
    usage: str
    sections: list[Section] = field(default_factory=list)


def help_of(program: Path, command: list[str]) -> Help:
    done = subprocess.run([program, *command, "--help"], check=True, capture_output=True, text=True,
                          env={**os.environ, "COLUMNS": "80"})  # fmt: skip
    return parse(done.stdout, program)


def parse(text: str, program: Path) -> Help:
    """The parts of what CLI11 prints: a sentence, the usage, and sections that begin with 'Title:'."""
    lines = text.strip("\n").splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("Usage: "))
    usage = lines[at].removeprefix("Usage: ").replace(str(program), program.name)
    parsed = Help(about=" ".join(lines[:at]).strip(), usage=usage)
    for line in lines[at + 1 :]:
        if re.fullmatch(r"[A-Z][A-Za-z ]*:", line):
            parsed.sections.append(Section(line[:-1]))
        elif line.strip() and not line.startswith(" ") and parsed.sections:
            # What stands after the list of options: a paragraph of its own.
            if parsed.sections[-1].title != "":
                parsed.sections.append(Section(""))
            parsed.sections[-1].lines.append(line)
        elif parsed.sections:
            parsed.sections[-1].lines.append(line)
    return parsed


def roff(text: str) -> str:
    """Plain text: no dash becomes a hyphen, and no line a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def entries(lines: list[str]) -> list[tuple[str, str]]:
    """(option with its value, what it does), of lines in two columns; the second may begin on the next line."""
    found: list[tuple[str, str]] = []
    for line in lines:
        if not line.strip():
            continue
        if re.match(r" {2}\S", line):
            left, _, right = line.strip().partition("  ")
            # A long name leaves one blank only before what it does.
            if not right and (parts := re.match(r"(.*?(?:Needs: \S+|\(Env:\S+\))) (\S.*)", left)):
                left, right = parts.groups()
            found.append((re.sub(r"^(-\w),--", r"\1, --", left), right.strip()))
        elif found:
            left, right = found[-1]
            found[-1] = (left, f"{right} {line.strip()}".strip())
    return found


def render_section(section: Section) -> list[str]:
    if section.title in ("Options", "Positionals", "Subcommands"):
        out: list[str] = []
        for left, right in entries(section.lines):
            if left.split()[0] not in INTERNAL:
                out += [".TP", f".B {roff(left)}", roff(right)]
        return out
    body = "\n".join(section.lines).strip("\n").splitlines()
    title = [f".PP\n{roff(section.title)}:"] if section.title else [".PP"]
    return [*title, ".nf", *(roff(line) if line.strip() else ".sp" for line in body), ".fi"]


def commands_of(help_: Help) -> list[str]:
    names = [left.split()[0] for section in help_.sections if section.title == "Subcommands"
             for left, _ in entries(section.lines)]  # fmt: skip
    return [name for name in names if name not in INTERNAL]


def render_command(program: Path, command: list[str]) -> list[str]:
    help_ = help_of(program, command)
    out = [f".SS {roff(' '.join([program.name, *command]))}", roff(help_.about) + ".", ".PP",
           f".B {roff(help_.usage)}"]  # fmt: skip
    for section in help_.sections:
        if section.title == "Subcommands":
            continue
        lines = [line for line in section.lines if "Print this help message" not in line]
        if any(line.strip() for line in lines):
            out += render_section(Section(section.title, lines))
    for name in commands_of(help_):
        out += render_command(program, [*command, name])
    return out


def page(program: Path, section: str) -> str:
    help_ = help_of(program, [])
    about = help_.about.rstrip(".")
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    date = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC).date()
    summary = about.removeprefix(f"{program.name}: ").split(". ")[0]
    out = [f'.TH {program.name.upper()} {section} "{date}" "{version}" "imgd"',
           ".SH NAME", f"{program.name} \\- {roff(summary[0].lower() + summary[1:])}",
           ".SH SYNOPSIS", f".B {roff(help_.usage)}",
           ".SH DESCRIPTION", roff(about) + "."]  # fmt: skip
    for part in help_.sections:
        out += ([f".SH {part.title.upper()}"] if part.title in ("Options", "Positionals") else
                [".SH COMMANDS"] if part.title == "Subcommands" else [])  # fmt: skip
        out += render_section(part)
        if part.title == "Subcommands":
            for name in commands_of(help_):
                out += render_command(program, [name])
    out.append(".SH FILES")
    for path, what in FILES[program.name]:
        out += [".TP", f".I {roff(path)}", roff(what)]
    see = ", ".join(name for name in SEE_ALSO if not name.startswith(f"{program.name}("))
    out += [".SH SEE ALSO", see, ".PP", "The documents in /usr/share/doc/imgd/docs, install.md first."]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1]).resolve(), sys.argv[2]))
