#!/usr/bin/env python3
"""No two sources of a library give one private name two meanings, and none takes that of a function of common/.

Nor does one take the name of a type, an alias, a constant or a same function of a header beside the library's sources.

All presets but dev and fuzz compile several sources of a library as one (CMAKE_UNITY_BUILD), where anonymous namespaces
and `static` hide nothing. Which ones changes with each new file, so that all sources of a target are compared here. The
parser is approximate: it knows what stands at namespace scope, and compares parameters by their words.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TARGET = re.compile(r"\b(?:add_library|add_executable|imgd_test)\s*\(\s*([\w$<>{}.:-]+)([^)]*)\)")
SKIPPED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#(?:[^\n\\]|\\.)*',
    re.DOTALL | re.MULTILINE,
)
TOKEN = re.compile(r"[A-Za-z_]\w*|::|->|<=>|==|\.\.\.|\d[\w.']*|\S")
OPENING, CLOSING = {"(", "[", "{"}, {")", "]", "}"}
# Of GoogleTest: the class that TEST makes, and the matcher that MATCHER names.
TEST_MACROS, NAMING_MACROS = {"TEST", "TEST_F", "TEST_P"}, re.compile(r"(MATCHER|ACTION)(_P\d*)?$")


class Name(NamedTuple):
    scope: str  # namespaces, but for anonymous ones
    name: str
    meaning: str  # declarations with other meanings of one name may stand beside each other if both are functions
    line: int
    is_function: bool


class Token(NamedTuple):
    text: str
    line: int


def tokens_of(source: str) -> list[Token]:
    """Words and signs; texts become "", comments and preprocessor lines nothing."""

    def blank(match: re.Match[str]) -> str:
        kept = '""' if match[0][0] in "\"'R" else " "
        return kept + "\n" * match[0].count("\n")

    text = SKIPPED.sub(blank, source)
    starts = [0, *(m.end() for m in re.finditer("\n", text))]
    found, line = [], 0
    for match in TOKEN.finditer(text):
        while line + 1 < len(starts) and starts[line + 1] <= match.start():
            line += 1
        found.append(Token(match[0], line + 1))
    return found


def words(tokens: list[Token]) -> list[str]:
    return [token.text for token in tokens]


def behind(tokens: list[Token], at: int) -> int:
    """Behind the bracket that closes the one here."""
    depth = 0
    while at < len(tokens):
        depth += (tokens[at].text in OPENING) - (tokens[at].text in CLOSING)
        at += 1
        if depth == 0:
            break
    return at


def behind_angles(tokens: list[Token], at: int) -> int:
    """The same for `<`."""
    depth = 0
    while at < len(tokens):
        text = tokens[at].text
        if text in OPENING:
            at = behind(tokens, at)
            continue
        depth += (text == "<") - (text == ">")
        at += 1
        if depth == 0:
            break
    return at


def split_at_commas(tokens: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    at = 0
    while at < len(tokens):
        text = tokens[at].text
        if text == ",":
            parts.append([])
            at += 1
            continue
        end = behind(tokens, at) if text in OPENING else behind_angles(tokens, at) if text == "<" else at + 1
        parts[-1] += tokens[at:end]
        at = end
    return parts


def type_of_parameter(tokens: list[Token]) -> str:
    """Without its name, its default, and a `const` that callers don't see."""
    texts = words(tokens)
    if "=" in texts:
        texts = texts[: texts.index("=")]
    while texts and texts[-1] == "]":
        texts = texts[: len(texts) - 1 - texts[::-1].index("[")]
    if len(texts) > 1 and re.match(r"[A-Za-z_]", texts[-1]) and texts[-2] != "::" and texts[-1] not in ("const", "int"):
        texts = texts[:-1]
    if texts[:1] == ["const"] and not {"*", "&"} & set(texts):
        texts = texts[1:]
    return " ".join(texts)


class Parser:
    """Walks over the declarations of one source file."""

    def __init__(self, source: str) -> None:
        self.tokens = tokens_of(source)
        self.at = 0
        self.names: list[Name] = []  # private ones
        self.public_names: list[Name] = []

    def text(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].text if at < len(self.tokens) else ""

    def parse(self) -> list[Name]:
        self.namespace("", private=False)
        if self.at <= len(self.tokens):
            raise ValueError(f"line {self.tokens[self.at - 1].line}: a bracket too many, or C++ that is not known here")
        return self.names

    def namespace(self, scope: str, private: bool) -> None:
        """Up to the `}` that ends it."""
        while self.at < len(self.tokens) and self.text() != "}":
            if self.text() == "namespace" or (self.text() == "inline" and self.text(1) == "namespace"):
                self.inner_namespace(scope, private)
            elif self.text() == "extern" and self.text(2) == "{":  # extern "C" {
                self.at += 3
                self.namespace(scope, private)
            else:
                self.declaration(scope, private)
        self.at += 1

    def inner_namespace(self, scope: str, private: bool) -> None:
        start = self.at + (2 if self.text() == "inline" else 1)
        end = start
        while self.tokens[end].text not in ("{", "="):
            end += 1
        path = "".join(words(self.tokens[start:end]))
        if self.tokens[end].text == "=":
            until = end
            while self.tokens[until].text != ";":
                until += 1
            value = "namespace " + "".join(words(self.tokens[end + 1 : until]))
            self.names.append(Name(scope, path, value, self.tokens[start].line, False))
            self.at = until + 1
            return
        self.at = end + 1
        self.namespace(f"{scope}::{path}" if path else scope, private or not path)

    def declaration(self, scope: str, private: bool) -> None:
        """One declaration, up to its `;` or the `}` of its body."""
        while self.text() in ("template", "["):  # [[attributes]]
            self.at = behind(self.tokens, self.at) if self.text() == "[" else behind_angles(self.tokens, self.at + 1)
        if self.text() == "requires":
            self.at = behind(self.tokens, self.at + 1)
        start = self.at
        # The head: what stands before a bracket, `=` or `;` that is not in a template's arguments.
        while self.at < len(self.tokens) and self.text() not in ("(", "{", "=", ";", "["):
            if self.text() == "<" and self.at > start:
                self.at = behind_angles(self.tokens, self.at)
            elif self.text() == "operator":
                self.at += 1
                while self.text() != "(" or self.text(1) == ")" and self.text(2) == "(":
                    self.at += 1
            else:
                self.at += 1
        head = self.tokens[start : self.at]
        stop = self.at
        self.to_end()
        if head:
            self.note(scope, private, head, stop)

    def to_end(self) -> None:
        """Behind the `;`, or behind a body that none follows."""
        assigned = False
        while self.at < len(self.tokens) and self.text() != ";":
            assigned = assigned or self.text() in ("=", "class", "struct", "enum", "union")
            body = self.text() == "{" and not assigned
            self.at = behind(self.tokens, self.at) if self.text() in OPENING else self.at + 1
            if body and self.text() != ";" and self.text() not in (",", "{"):
                return
        self.at += 1

    def note(self, scope: str, private: bool, head: list[Token], stop: int) -> None:
        texts = words(head)
        kind = "an extern variable" if texts[0] == "extern" else "a constant"
        if private or texts[0] == "static":
            kind = "a variable"
        private = private or texts[0] in ("static", "const", "constexpr")
        into = self.names if private else self.public_names
        line = head[0].line
        stopped_by = self.tokens[stop].text if stop < len(self.tokens) else ""
        if texts[0] in TEST_MACROS:
            arguments = words(self.tokens[stop + 1 : behind(self.tokens, stop) - 1])
            self.names.append(Name(scope, "_".join(a for a in arguments if a != ","), "a test", line, False))
        elif NAMING_MACROS.match(texts[0]):
            self.names.append(Name(scope, self.tokens[stop + 1].text, "a matcher", line, False))
        elif texts[0] in ("static_assert", "friend", "typedef"):
            return
        elif texts[0] == "using":
            if stopped_by == "=":
                value = "using " + "".join(words(self.tokens[stop + 1 : self.at - 1]))
                into.append(Name(scope, texts[1], value, line, False))
        elif texts[0] in ("class", "struct", "union", "enum"):
            if stopped_by == "{":
                self.note_type(into, scope, texts, stop, line)
        elif "operator" in texts:
            name = "operator" + "".join(texts[texts.index("operator") + 1 :])
            self.note_function(into, scope, name, stop, line)
        elif len(texts) > 1 and texts[-2] != "::" and re.match(r"[A-Za-z_]", texts[-1]):
            if stopped_by == "(":
                self.note_function(into, scope, texts[-1], stop, line)
            else:
                into.append(Name(scope, texts[-1], kind, line, False))

    def note_type(self, into: list[Name], scope: str, texts: list[str], stop: int, line: int) -> None:
        plain = [text for text in texts if text not in ("class", "struct", "union", "enum", "final")]
        if ":" in plain:
            plain = plain[: plain.index(":")]
        if "::" in plain:
            return
        if plain:
            into.append(Name(scope, plain[0], f"a {texts[0]}", line, False))
        if texts[0] == "enum" and texts[1:2] not in (["class"], ["struct"]):
            for value in split_at_commas(self.tokens[stop + 1 : behind(self.tokens, stop) - 1]):
                if value:
                    into.append(Name(scope, value[0].text, "an enum's value", value[0].line, False))

    def note_function(self, into: list[Name], scope: str, name: str, stop: int, line: int) -> None:
        parameters = split_at_commas(self.tokens[stop + 1 : behind(self.tokens, stop) - 1])
        types = ", ".join(type_of_parameter(p) for p in parameters)
        into.append(Name(scope, name, f"({types})", line, True))


@functools.cache
def parsed(source: str) -> Parser:
    parser = Parser(source)
    parser.parse()
    return parser


def collide(one: Name, other: Name) -> bool:
    if one.is_function and other.is_function:
        return one.meaning == other.meaning
    same_alias = one.meaning == other.meaning and one.meaning.startswith(("using ", "namespace "))
    return not same_alias


def collisions(sources: dict[str, str]) -> list[str]:
    """What is wrong among the sources of one target, by path."""
    seen: dict[tuple[str, str], list[tuple[str, Name]]] = {}
    errors = []
    for path, source in sources.items():
        for name in parsed(source).names:
            others = seen.setdefault((name.scope, name.name), [])
            first = next(((p, o) for p, o in others if p != path and collide(name, o)), None)
            if first:
                shown = name.name + (name.meaning if name.is_function else "")
                errors.append(f"{path}:{name.line}: {shown} is also in {first[0]}:{first[1].line}")
            others.append((path, name))
    return errors


def hidden(sources: dict[str, str], headers: dict[str, str]) -> list[str]:
    """Private functions by the name of a header's: in one unit, a call of another source would prefer theirs."""
    public = {
        (name.scope, name.name): f"{path}:{name.line}"
        for path, header in headers.items()
        for name in parsed(header).public_names
        if name.is_function
    }
    return [
        f"{path}:{name.line}: {name.name} is also in {public[name.scope, name.name]}"
        for path, source in sources.items()
        for name in parsed(source).names
        if name.is_function and (name.scope, name.name) in public
    ]


def taken(sources: dict[str, str], headers: dict[str, str]) -> list[str]:
    """Private names that a header of the library has: a source after theirs in one unit includes it."""
    public: dict[tuple[str, str], list[tuple[str, Name]]] = {}
    for path, header in headers.items():
        for name in parsed(header).public_names:
            public.setdefault((name.scope, name.name), []).append((path, name))
    errors = []
    for path, source in sources.items():
        for name in parsed(source).names:
            others = public.get((name.scope, name.name), [])
            if name.meaning == "a constant":  # which may be the one that is declared there
                others = [(p, o) for p, o in others if o.meaning != "an extern variable"]
            first = next(((p, o) for p, o in others if collide(name, o)), None)
            if first:
                errors.append(f"{path}:{name.line}: {name.name} is also in {first[0]}:{first[1].line}")
    return errors


def headers_beside(sources: Iterable[Path]) -> dict[str, str]:
    """Those in the folders that the sources are in."""
    folders = sorted({path.parent for path in sources})
    return {str(path): path.read_text() for folder in folders for path in sorted(folder.glob("*.h"))}


def targets_of(cmake: Path) -> dict[str, list[Path]]:
    """The sources of each target; of those with a list of their own."""
    text = re.sub(r"#[^\n]*", "", cmake.read_text())
    found = {}
    for match in TARGET.finditer(text):
        sources = [cmake.parent / word for word in match[2].split() if word.endswith(".cc") and "$" not in word]
        if len(sources) > 1:
            found[match[1]] = sources
    return found


def main() -> int:
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*CMakeLists.txt"], check=True,
                             capture_output=True, text=True)  # fmt: skip
    headers = {str(path): path.read_text() for path in Path("common").glob("*.h")}
    errors = []
    for cmake in listing.stdout.split():
        for target, paths in targets_of(Path(cmake)).items():
            sources = {str(path): path.read_text() for path in paths}
            found = collisions(sources) + hidden(sources, headers) + taken(sources, headers_beside(paths))
            errors += [f"{error}: a private name must be the only one of its kind in {target}" for error in found]
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
