#!/usr/bin/env python3
"""That every mutant can be made of the core as it is: who changes the text of one changes the mutant too."""

from __future__ import annotations

import unittest

from mutants import CORE, MUTANTS, Mutant, changed_source


class Mutants(unittest.TestCase):
    def test_the_text_of_each_occurs_once_in_its_source(self) -> None:
        for mutant in MUTANTS:
            with self.subTest(mutant.name):
                self.assertNotEqual(changed_source(mutant), (CORE / mutant.file).read_text())

    def test_one_whose_text_is_not_there_is_told_of(self) -> None:
        with self.assertRaisesRegex(ValueError, "is 0 times in server/core/job.cc"):
            changed_source(Mutant("gone", "job.cc", "no such text", ""))

    def test_each_has_a_name_of_its_own(self) -> None:
        names = [mutant.name for mutant in MUTANTS]
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
