"""Reads Prometheus' text format, and takes less than Prometheus does: what is merely allowed is an error here."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")
Labels = frozenset[tuple[str, str]]


@dataclass
class Family:
    """A metric: its samples by labels."""

    kind: str
    help: str
    samples: dict[Labels, float] = field(default_factory=dict)

    def total(self, **labels: str) -> float:
        """Sum over the samples that have these labels; fails if there are none."""
        found = [value for have, value in self.samples.items() if labels.items() <= dict(have).items()]
        assert found, f"no sample with {labels}"
        return sum(found)


def parse(text: str) -> dict[str, Family]:
    """The families by name. Each has HELP, then TYPE, then its samples, all together, none twice, all finite."""
    assert text == "" or text.endswith("\n"), "the last line is not ended"
    families: dict[str, Family] = {}
    helped: tuple[str, str] | None = None
    current = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, words = line.removeprefix("# HELP ").split(" ", 1)
            assert words.strip() and helped is None and name not in families, line
            helped = (name, words)
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert helped is not None and helped[0] == name and kind in ("counter", "gauge"), line
            assert (kind == "counter") == name.endswith("_total"), line
            families[name] = Family(kind, helped[1])
            current, helped = name, None
        else:
            match = SAMPLE.fullmatch(line)
            assert match and match[1] == current and helped is None, f"not a sample of {current}: {line!r}"
            labels = re.findall(LABEL, match[2] or "")
            pairs = [(label.split("=", 1)[0], label.split('"', 1)[1][:-1]) for label in labels]
            assert len(dict(pairs)) == len(pairs), f"a label twice: {line}"
            value = float(match[3])
            assert math.isfinite(value) and (families[current].kind == "gauge" or value >= 0), line
            assert frozenset(pairs) not in families[current].samples, f"twice: {line}"
            families[current].samples[frozenset(pairs)] = value
    assert helped is None and all(family.samples for family in families.values()), "a family without samples"
    return families
