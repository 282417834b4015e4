#!/usr/bin/env python3
"""That unique_names.py finds a planted duplicate, and lets stand what C++ does."""

from __future__ import annotations

import unittest

from unique_names import collisions, hidden, taken


def private(code: str) -> str:
    return "namespace a::b {\nnamespace {\n" + code + "\n}  // namespace\n}  // namespace a::b\n"


class UniqueNames(unittest.TestCase):
    def check_two(self, one: str, other: str, wrong: int) -> None:
        found = collisions({"one.cc": private(one), "two.cc": private(other)})
        self.assertEqual(len(found), wrong, found)

    def test_a_second_meaning_is_found_with_its_place(self) -> None:
        found = collisions({"one.cc": private("\nconstexpr int kMost = 1;"), "two.cc": private("int kMost = 2;")})
        self.assertEqual(found, ["two.cc:3: kMost is also in one.cc:4"])

    def test_each_kind_of_name(self) -> None:
        for code in (
            'const std::map<int, std::string> kNames = {{1, "}"}};',
            "struct S {\n  int x[2] = {};\n  bool f() { return x[x[0]] > 1; }\n};",
            "class C final : public Base<int> {};",
            "enum E : uint32_t { kOne = f(1, 2), kTwo };",
            "namespace fs = std::filesystem;\nint fs2 = '{';",
            "template <typename T, int N>\nbool F(std::span<const T> in, size_t) {\n  return in[0] < N;\n}",
            "[[gnu::always_inline]] inline bool operator<(const S& a, const S& b) { return a.x < b.x; }",
            'TEST(Suite, Name) {}\nMATCHER_P(IsIt, x, "") { return true; }',
            "#define X {\nauto kLambda = [](int x) { return x; };",
        ):
            names = len(collisions({"one.cc": private(code), "two.cc": private(code + " int last;")}))
            self.assertGreaterEqual(names, 1, code)
            self.check_two(code + "\nint kEnd = 1;", "int kEnd = 2;", 1)

    def test_overloads_and_equal_aliases_may_stand(self) -> None:
        self.check_two("int F(int x) { return x; }", "int F(const std::string& x = {}) { return 1; }", 0)
        self.check_two("int F(int x);", "double F(const int y) { return y; }", 1)
        self.check_two("int F(int x);", "struct F {};", 1)
        self.check_two("using T = std::vector<int>;", "using T = std::vector<int>;", 0)
        self.check_two("using T = std::vector<int>;", "using T = std::vector<char>;", 1)
        self.check_two("using testing::HasSubstr;", "using testing::HasSubstr;", 0)
        self.check_two("bool S::Take() { return true; }", "bool S::Take() { return true; }", 0)

    def test_a_name_of_a_header_is_found(self) -> None:
        header = "namespace a::b {\ninline int F(int x = 1) { return x; }\nstruct S {\n  void G();\n};\n}\n"
        find = lambda code: hidden({"one.cc": private(code)}, {"common/f.h": header})  # noqa: E731
        self.assertEqual(find("int F(std::string x);"), ["one.cc:3: F is also in common/f.h:2"])
        self.assertEqual(find("int G();\nint E() { return F(1); }"), [])

    def test_what_a_header_of_the_library_names_is_found(self) -> None:
        declared = (
            "namespace a::b {\nusing Sum = std::array<char, 32>;\nstruct Page {\n  int Line();\n};\n"
            "int Read(int x);\ninline constexpr int kMost = 1;\nenum Kind { kOne };\nclass Later;\n}\n"
        )
        find = lambda code: taken({"one.cc": private(code)}, {"a/f.h": declared})  # noqa: E731
        self.assertEqual(find("std::string Sum(const std::string& of);"), ["one.cc:3: Sum is also in a/f.h:2"])
        for code in (
            "bool Page(int x);",
            "struct Page {};",
            "int Read(int y);",
            "constexpr int kMost = 2;",
            "int kOne();",
        ):
            self.assertEqual(len(find(code)), 1, code)
        for code in ("int Read(double x);", "int Line();", "class Later {};", "using Sum = std::array<char, 32>;"):
            self.assertEqual(find(code), [], code)
        extern = {"f.h": "extern const int kSize;\n"}
        self.assertEqual(taken({"one.cc": "const int kSize = 1;\n"}, extern), [])
        self.assertEqual(len(taken({"one.cc": "namespace {\nconst int kSize = 1;\n}\n"}, extern)), 1)
        own = "namespace a::b {\nint Read(int x) { return x; }\n}\n"
        self.assertEqual(taken({"one.cc": own}, {"f.h": declared}), [])

    def test_other_namespaces_and_public_names_are_not_looked_at(self) -> None:
        one = private("int x;")
        self.assertEqual(collisions({"one.cc": one, "two.cc": one.replace("a::b", "a::c")}), [])
        public = "namespace a {\nint F() { return 1; }\nint* p = nullptr;\n}\n"
        self.assertEqual(collisions({"one.cc": public, "two.cc": public}), [])
        hidden = public.replace("int F", "static int F")
        self.assertEqual(len(collisions({"one.cc": hidden, "two.cc": hidden})), 1)


if __name__ == "__main__":
    unittest.main()
