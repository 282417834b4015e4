#!/usr/bin/env python3
"""Sums up what GoogleTest wrote (GTEST_OUTPUT=xml:FOLDER/): how many there were, what failed, why some were skipped."""

import sys
import xml.etree.ElementTree
from pathlib import Path


def main(folder: Path) -> None:
    total = 0
    failed = []
    skipped = []
    for file in sorted(folder.glob("*.xml")):
        for case in xml.etree.ElementTree.parse(file).iter("testcase"):
            if case.get("status") != "run":
                continue
            total += 1
            name = f"{case.get('classname')}.{case.get('name')}"
            if failures := [text(failure) for failure in case.iter("failure")]:
                failed.append(f"failed: {file.stem} {name}\n" + "\n".join(failures))
            elif (skip := case.find("skipped")) is not None:
                skipped.append(f"skipped: {name}: {text(skip).splitlines()[-1]}")
    passed = total - len(failed) - len(skipped)
    print(f"{total} unit tests: {passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    for line in skipped + failed:
        print(line)


def text(element: xml.etree.ElementTree.Element) -> str:
    return (element.get("message") or "").strip() or "it does not say why"


main(Path(sys.argv[1]))
