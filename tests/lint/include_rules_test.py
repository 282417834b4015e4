#!/usr/bin/env python3
"""That include_rules.py finds a planted include, also at the end of a way, and lets stand what is allowed."""

from __future__ import annotations

import unittest

from include_rules import errors_of


class IncludeRules(unittest.TestCase):
    def test_what_the_core_reaches_is_found_with_its_way(self) -> None:
        sources = {
            "server/core/a.cc": '#include "server/core/a.h"\n\n#include "common/b.h"\n',
            "server/core/a.h": "#include <map>\n",
            "common/b.h": '#include "common/c.h"\n',
            "common/c.h": "#  include <mutex>\n",
        }
        self.assertEqual(
            errors_of(sources),
            ["server/core/a.cc:3: includes mutex through common/b.h and common/c.h: the core is pure"],
        )
        sources["common/c.h"] = "#include <string>\n"
        self.assertEqual(errors_of(sources), [])

    def test_other_parts_of_the_server_are_none_of_the_cores(self) -> None:
        for part in ("engine", "policy", "rpc", "store", "web"):
            found = errors_of({"server/core/a.cc": f'#include "server/{part}/x.h"\n'})
            self.assertEqual(found, [f"server/core/a.cc:1: includes server/{part}/x.h: the core is pure"])

    def test_the_core_has_no_way_to_the_outside_world(self) -> None:
        headers = ("netinet/in.h arpa/inet.h netdb.h sys/socket.h pthread.h semaphore.h curl/curl.h poll.h "
                   "linux/futex.h semaphore latch barrier stop_token condition_variable future thread mutex "
                   "shared_mutex atomic random "
                   "unordered_map fstream ctime sqlite3.h grpcpp/grpcpp.h boost/asio.hpp imgd/v1/job.pb.h")  # fmt: skip
        for header in headers.split():
            with self.subTest(header):
                found = errors_of({"server/core/a.cc": f"#include <{header}>\n"})
                self.assertEqual(found, [f"server/core/a.cc:1: includes {header}: the core is pure"])
        for header in ("map", "optional", "chrono", "fmt/format.h", "server/core/time_limits.h", "server/core/mutex.h"):
            self.assertEqual(errors_of({"server/core/a.cc": f'#include "{header}"\n'}), [], header)

    def test_the_core_asks_no_clock(self) -> None:
        for call in ("std::chrono::steady_clock::now()", 'getenv("HOME")', "time(nullptr)"):
            found = errors_of({"server/core/a.cc": f"int x;\nauto t = {call};\n"})
            self.assertEqual(len(found), 1, call)
            self.assertTrue(found[0].startswith("server/core/a.cc:2: asks "))
        self.assertEqual(errors_of({"server/core/a.cc": "// getenv(x)\nint busy_time(int);\n"}), [])
        self.assertEqual(errors_of({"server/core/a_test.cc": "auto t = time(nullptr);\n"}), [])

    def test_tests_of_the_core_may_do_more_but_not_what_the_server_may_not(self) -> None:
        self.assertEqual(errors_of({"server/core/a_test.cc": "#include <mutex>\n"}), [])
        self.assertEqual(len(errors_of({"server/core/a_test.cc": '#include "agent/x.h"\n'})), 1)


if __name__ == "__main__":
    unittest.main()
