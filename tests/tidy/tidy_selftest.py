#!/usr/bin/env python3
# tidy_selftest.py - the rules of tidy.py against small trees that break them one at a time.
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import tidy  # noqa: E402
import tidy_prose  # noqa: E402

GOOD_HEADER = """// ring.h - a ring of slots, used by the tests of tidy.
#pragma once

#include <cstdint>

namespace unet {
struct Ring {
  uint32_t size;
};
}  // namespace unet
"""

GOOD_SOURCE = """// ring.cc - a ring of slots.
#include "unet/ring.h"

#include "unet/base/check.h"
"""

GOOD_TREE = {
    "unet/base/check.h": "// check.h - checks.\n#pragma once\nnamespace unet {}\n",
    "ni/driver.h": "// driver.h - the driver interface.\n#pragma once\nnamespace unet {}\n",
    "unet/ring.h": GOOD_HEADER,
    "unet/ring.cc": GOOD_SOURCE,
    "ni/engine/engine.h": "// engine.h - the engine.\n#pragma once\n#include \"ni/driver.h\"\nnamespace unet::engine {}\n",
    "drivers/sim/sim.h": "// sim.h - a wire.\n#pragma once\n#include \"ni/driver.h\"\nnamespace unet::drivers {}\n",
    "README.md": "See [the ring](unet/ring.h) and [the web](https://example.org/).\n",
}


class Tree(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="unet-tidy-"))
        self.addCleanup(shutil.rmtree, self.root)
        for path, text in GOOD_TREE.items():
            self.write(path, text)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def code(self, body, path="ni/engine/body.cc"):
        """Writes a source file that breaks only the rule that `body` breaks; returns the complaints about it."""
        self.write(path, f"// {Path(path).name} - a body.\n{body}\n")
        return sorted((line, rule) for where, line, rule, _ in tidy.check(self.root) if where == path)

    def rules(self, path):
        return [rule for where, _, rule, _ in tidy.check(self.root) if where == path]


class FileRules(Tree):
    def test_a_good_tree_has_no_complaints(self):
        self.assertEqual(tidy.check(self.root), [])

    def test_first_line(self):
        self.write("unet/ring.cc", GOOD_SOURCE.replace("ring.cc - ", "queue.cc - "))
        self.assertEqual(self.rules("unet/ring.cc"), ["first-line"])
        self.write("unet/ring.cc", "")
        self.assertEqual(self.rules("unet/ring.cc"), ["first-line"])

    def test_pragma_once(self):
        self.write("unet/ring.h", GOOD_HEADER.replace("#pragma once\n", ""))
        self.assertEqual(self.rules("unet/ring.h"), ["pragma-once"])

    def test_namespace(self):
        self.write("ni/engine/engine.h", "// engine.h - the engine.\n#pragma once\nnamespace unet::bench {}\n")
        self.assertEqual(self.rules("ni/engine/engine.h"), ["namespace"])

    def test_a_c_header_has_no_namespace(self):
        self.write("unet/unet.h", '// unet.h - the C ABI.\n#pragma once\n#ifdef __cplusplus\nextern "C" {\n#endif\n')
        self.assertEqual(self.rules("unet/unet.h"), [])

    def test_file_names(self):
        self.write("unet/utils.h", "// utils.h - things.\n#pragma once\nnamespace unet {}\n")
        self.write("unet/Ring.cc", "// Ring.cc - a ring.\n")
        self.assertEqual(self.rules("unet/utils.h"), ["file-name"])
        self.assertEqual(self.rules("unet/Ring.cc"), ["file-name"])

    def test_shape(self):
        self.assertEqual(self.code("int\tx;"), [(2, "tab")])
        self.assertEqual(self.code("int x; "), [(2, "trailing-blank")])
        self.assertEqual(self.code("int x;" + " //" + "-" * tidy.MAX_COLUMNS), [(2, "line-length")])
        self.assertEqual(self.code("int x;\n" * tidy.MAX_LINES), [(tidy.MAX_LINES + 1, "file-length")])
        self.assertEqual(self.code("\n" * (tidy.MAX_LINES - 2)), [])

    def test_machine_paths_and_to_dos(self):
        for text in ('auto p = "/ro' 'ot/x";', "// see /home/" "someone/x", "// /wo" "rk/main"):
            self.assertEqual(self.code(text), [(2, "machine-path")])
        self.assertEqual(self.code('auto p = "/run/unet/x"; // a/wo' 'rk/b'), [])
        self.assertEqual(self.code("// TO" "DO: later"), [(2, "to-do")])
        self.write("README.md", "in /wo" "rk/main\n")
        self.assertEqual(self.rules("README.md"), ["machine-path"])

    def test_a_document_may_show_what_an_allowance_looks_like(self):
        self.write("README.md", "// tidy: allow volatile because REASON\n")
        self.assertEqual(self.rules("README.md"), [])
        self.write("README.md", "in /wo" "rk/main <!-- tidy: allow machine-path because it is quoted -->\n")
        self.assertEqual(self.rules("README.md"), [])

    def test_links(self):
        self.write("README.md", "See [that](docs/NONE.md).\n")
        self.assertEqual(self.rules("README.md"), ["link"])

    def test_threats_name_tests_that_exist(self):
        self.write("tests/system/one.py", "def test_it():\n    pass\n")
        cases = ("it holds", "that too", "it holds, so it does", "it holds, for one", "it holds, for two")
        self.write("unet/ring_test.cc", "// ring_test.cc - tests.\n" + "".join(f'TEST_CASE("{case}") {{}}\n' for case in cases))
        self.write("tests/fuzz/frame_fuzz.cc", "// frame_fuzz.cc - tests.\n")
        self.write("ipstack/tcp/scripts/open/active.tcp", "")
        items = "### A memory\n- One: so. {}\n- Two: also.\n  The same.\n- Three: nothing stops it.\n"
        for good in ("`ring_test: it holds; that too`, `one.py: test_it`", "`unet_ring_test`", "`ring_test: it holds,\n  so it*`", "`fuzz_frame`",
                     "`ring_test: it holds` (scripts `open`)"):
            self.write("docs/THREATS.md", items.format(good))
            self.assertEqual(self.rules("docs/THREATS.md"), [], good)
        for bad in ("`ring_test: it is gone`", "`ring_test: it hold`", "`ring_test: that too; it is gone`", "`other_test`", "`one.py: test_that`",
                    "`fuzz_ring`", "`ring_test: it is gone, so*`", "`ring_test: it holds, for*`", "`ring_test: that*`",
                    "`ring_test: it holds` (scripts `close`)"):
            self.write("docs/THREATS.md", items.format(bad))
            self.assertEqual(self.rules("docs/THREATS.md"), ["threats"], bad)
        for bad in ("### A\n- One: so.\n", "### A\n- One: so. The same.\n", "### A\n- One: `ring_test`\n### B\n- Two: so. The same.\n",
                    "### A\n- One: `ring_test`\n- Two: nothing stops it.\n- Three: so. The same.\n", "### A\n- One: `bad_crc`.\n",
                    "| a | test |\n|---|---|\n| b | `ring_test` |\n", "The test `other_test` is of all.\n"):
            self.write("docs/THREATS.md", bad)
            self.assertEqual(self.rules("docs/THREATS.md"), ["threats"], bad)

    def test_the_table_of_rfcs_names_tests_that_exist(self):
        self.write("ipstack/meson.build", "unit_tests += {'ip': {'prefix': 'ip_', 'names': ['host', 'a/part']}}\ntest('tcp_pair', x)\n")
        self.write("drivers/meson.build", "foreach name : ['pcap']\n  test('driver_' + name, x)\nendforeach\n")
        self.write("tests/system/meson.build", "foreach name : ['whole-job']\n  test(name, x)\nendforeach\n")
        self.write("tests/system/one.py", "")
        self.write("ipstack/tcp/scripts/open/active.tcp", "")
        head = "| RFC | what of it | test |\n|---|---|---|\n"
        for good in ("`ip_host`, `ip_a_part`", "`tcp_pair` (so)", "`driver_pcap`, Linux (`one.py`)", "`whole-job`", "Linux (`tests/system`)", "",
                     "scripts `open`, `open/active`; `ip_host`", "scripts `open/act*`"):
            self.write("docs/TCPIP.md", f"{head}| 1 | `a` | {good} |\n\nscripts `open` and `b`\n\n| a | test of |\n|---|---|\n| x | `c` |\n")
            self.assertEqual(self.rules("docs/TCPIP.md"), [], good)
        for bad in ("`host`", "`ip_pcap`", "`two.py`", "`open`", "scripts `close`", "scripts `open/passive`", "scripts `open`, `ip_host`",
                    "`one.p`"):
            self.write("docs/TCPIP.md", f"{head}| 1 | `a` | {bad} |\n")
            self.assertEqual(self.rules("docs/TCPIP.md"), ["rfc-test"], bad)
        self.write("docs/TCPIP.md", "It is so (scripts `open/passive`).\n")
        self.assertEqual(self.rules("docs/TCPIP.md"), ["rfc-test"])

    def test_rfcs_that_code_cites_are_described(self):
        self.write("unet/wire/tcp.cc", "// tcp.cc - headers.\n// RFC 9293, 3.1\nint a;  // RFCs 1122 and 791\n")
        self.write("unet/wire/tcp_test.cc", "// tcp_test.cc - RFC 5482 is of tests alone.\n")
        self.write("unet/other.cc", "// other.cc - RFC 768 is not of TCP/IP.\n")
        head = "| RFC | what of it | test |\n|---|---|---|\n"
        for good in (f"{head}| 1122; 9293 TCP | `a` | |\n", "Not RFC 9293, nor RFC 1122.\n"):
            self.write("docs/TCPIP.md", good)
            self.assertEqual(self.rules("docs/TCPIP.md"), [], good)
        for bad in (f"{head}| 1122 | of 9293 | |\n", f"{head}| 1122, 19293 | `a` | |\n", "9293, RFC 1122\n"):
            self.write("docs/TCPIP.md", bad)
            self.assertEqual(self.rules("docs/TCPIP.md"), ["rfc"], bad)

    def test_options_of_sockets_are_described(self):
        code = """// endpoint_stack_options.cc - options.
        bool f(int name) { return name == SO_ERROR; }
        constexpr Option kAll[] = {{IPPROTO_TCP, TCP_CORK, 1}};
        """
        self.write("ipstack/sockets/endpoint_stack_options.cc", code.replace("\n        ", "\n"))
        self.write("docs/SOCKETS.md", "# Sockets\n\n## Options\n\n`SO_ERROR`, and `TCP_CORK` of streams\n")
        self.assertEqual(self.rules("docs/SOCKETS.md"), [])
        for bad in ("## Options\n\n`SO_ERROR`", "## Options\n\n`SO_ERROR`\n\n## Others\n\n`TCP_CORK`", "## Else\n\n`SO_ERROR`"):
            self.write("docs/SOCKETS.md", f"# Sockets\n\n{bad}\n")
            self.assertEqual(set(self.rules("docs/SOCKETS.md")), {"options"}, bad)

    def test_intercepted_functions_are_exported(self):
        self.write("ipstack/preload/real.h", "// real.h - names.\n#pragma once\n#define ALL(X) X(read) X(send)\nnamespace unet::preload {}\n")
        self.write("ipstack/preload/a.cc", "// a.cc - calls.\nUNET_PRELOAD __attribute__((cold)) int* dup(int fd) { return f(fd); }\n")
        self.write("ipstack/preload/preload.map", "{ global: read; send; dup; };\n")
        self.assertEqual(self.rules("ipstack/preload/preload.map"), [])
        for missing in ("read", "send", "dup"):
            self.write("ipstack/preload/preload.map", "{ global: read; send; dup; };\n".replace(f" {missing};", ""))
            self.assertEqual(self.rules("ipstack/preload/preload.map"), ["exports"], missing)

    def test_build_directories_are_not_looked_at(self):
        self.write("build-x/ring.cc", "int\tx;")
        self.write(".git/ring.cc", "int\tx;")
        self.assertEqual(tidy.check(self.root), [])


class BannedWords(Tree):
    CASES = {
        "volatile": "volatile int x;",
        "if-0": "#if 0",
        "ranges": "#include <ranges>",
        "format": "auto s = std::format(\"x\");",
        "assert": "void f() { assert(1); }",
        "using-namespace-std": "using namespace std;",
        "seq_cst": "x.load(std::memory_order_seq_cst);",
        "throw": "void f() { throw 1; }",
        "iostream": "#include <iostream>",
        "std::function": "std::function<void()> f;",
        "shared_ptr": "std::shared_ptr<int> p;",
        "lock": "std::mutex m;",
        "sleep": "void f() { usleep(1); }",
        "clock": "auto t = std::chrono::steady_clock::now();",
        "random": "std::random_device r;",
        "getenv": "const char* v = std::getenv(name);",
    }

    def test_every_banned_word_is_found(self):
        self.assertEqual({row[0] for row in tidy.BANNED}, set(self.CASES))
        for rule, text in self.CASES.items():
            with self.subTest(rule):
                self.assertEqual(self.code("\n" + text), [(3, rule)])

    def test_what_is_no_such_word(self):
        for text in ("// volatile, throw", "/* assert(1)\n volatile */", 'auto s = "volatile";', 'asm volatile("");',
                     "static_assert(1);", "int volatile_count;", 'auto s = R"(throw)";', "x.assert(1);",
                     "std::atomic_thread_fence(std::memory_order_seq_cst);", "int x = 1'000; char c = '\"'; // volatile"):
            with self.subTest(text):
                self.assertEqual(self.code(text), [])

    def test_words_are_banned_where_they_hurt(self):
        self.assertEqual(self.code("std::mutex m;", "ni/service/names.cc"), [])
        self.assertEqual(self.code("std::function<void()> f;", "drivers/sim/body.cc"), [(2, "std::function")])
        self.assertEqual(self.code("std::mutex m;", "ni/engine/body_test.cc"), [])

    def test_a_reason_allows(self):
        reason = "// tidy: allow volatile because the handler is a signal's"
        self.assertEqual(self.code(f"volatile int x;  {reason}"), [])
        self.assertEqual(self.code(f"{reason}\nvolatile int x;"), [])
        self.assertEqual(self.code("volatile int x;  // tidy: allow volatile because"), [(2, "volatile")])
        self.assertEqual(self.code(f"{reason}\n\nvolatile int x;"), [(2, "allow"), (4, "volatile")])
        self.assertEqual(self.code(f"int x;  {reason}"), [(2, "allow")])

    def test_atomic_calls_name_their_order(self):
        self.assertEqual(self.code("std::atomic<int> x;\nint y = x.load();"), [(3, "atomic-order")])
        self.assertEqual(self.code("std::atomic<int> x;\nvoid f() { x.store(g(1, 2)); }"), [(3, "atomic-order")])
        self.assertEqual(self.code("std::atomic<int> x;\nvoid f() { p->fetch_add(1); }"), [(3, "atomic-order")])
        self.assertEqual(self.code("std::atomic<int> x;\nint y = x.load(std::memory_order_acquire);"), [])
        self.assertEqual(self.code("int y = config.load();"), [])


class Prose(Tree):
    def setUp(self):
        super().setUp()
        budget, tidy_prose.BUDGET = tidy_prose.BUDGET, {"unet": (1, 0), "ni/engine": (0, 1)}
        self.addCleanup(setattr, tidy_prose, "BUDGET", budget)
        self.write("docs/GLOSSARY.md", "| word | means | not |\n|---|---|---|\n| yield | gives the core away | `give way`, `keeper`, rest |\n")

    def warnings(self, path, text):
        self.write(path, text)
        found = [re.match(r"(.*?): (\d+) (\w+)", each).groups() for each in tidy_prose.prose(tidy.read_tree(self.root))]
        (self.root / path).unlink()
        return found

    def test_persons_and_replaced_words_are_counted(self):
        self.assertEqual(self.warnings("unet/a.cc", "// a.cc - who\nint who;  /* Whose,\n nobody */\n"), [("unet", "3", "persons")])
        self.assertEqual(self.warnings("unet/a.cc", 'const char* a = "// who"; int him;  // Keepers give way: the rest.\n'), [("unet", "1", "words")])
        self.assertEqual(self.warnings("am/a.py", "# who\nwho = 1  # not a line of its own\n"), [("am", "1", "persons")])
        self.assertEqual(self.warnings("README.md", "Ask somebody.\n\n    who    # a command\n"), [(".", "1", "persons")])

    def test_a_budget_is_the_nearest_directorys(self):
        self.assertEqual(self.warnings("unet/a.cc", "// a.cc - who\n"), [])
        self.assertEqual(self.warnings("ni/engine/a.cc", "// a.cc - who is a keeper\n"), [("ni/engine", "1", "persons")])
        self.assertEqual(self.warnings("tests/tidy/a.py", "# who\n"), [])

    def test_it_is_a_complaint(self):
        self.write("am/a.cc", "// a.cc - who\n")
        done = subprocess.run([sys.executable, "-B", tidy.__file__, "--root", str(self.root)], text=True, capture_output=True)
        self.assertIn("am: 1 persons", done.stdout)


class Includes(Tree):
    def include(self, path, name):
        line = f'#include "{name}"' if not name.startswith("<") else f"#include {name}"
        self.write("ni/service/names.h", "// names.h - names.\n#pragma once\nnamespace unet::service {}\n")
        self.write("am/am.h", "// am.h - Active Messages.\n#pragma once\n")
        self.write("am/splitc/job.h", "// job.h - a job.\n#pragma once\n")
        self.write("drivers/pcap/file.h", "// file.h - a file.\n#pragma once\nnamespace unet::drivers {}\n")
        complaints = self.code(line, path)
        (self.root / path).unlink()
        return [rule for _, rule in complaints] == []

    def test_the_table(self):
        allowed = [
            ("unet/base/a.cc", "unet/base/check.h"), ("unet/a.cc", "unet/base/check.h"), ("unet/a.cc", "unet/ring.h"),
            ("ni/engine/a.cc", "unet/ring.h"), ("ni/service/a.cc", "ni/engine/engine.h"),
            ("drivers/sim/a.cc", "ni/driver.h"), ("drivers/sim/a.cc", "drivers/sim/sim.h"), ("drivers/sim/a.cc", "unet/ring.h"),
            ("am/splitc/a.cc", "am/am.h"), ("am/a.cc", "unet/ring.h"), ("apps/unetd/a.cc", "drivers/sim/sim.h"),
            ("apps/examples/a.c", "unet/ring.h"), ("tests/sim/a.cc", "drivers/sim/sim.h"),
            ("drivers/dpdk/a.cc", "<rte_mbuf.h>"), ("drivers/pcap/a.cc", "<pcap/pcap.h>"),
            ("unet/a_test.cc", "<catch2/catch.hpp>"), ("unet/a.cc", "unet/version_number.h"),
        ]
        forbidden = [
            ("unet/base/a.cc", "unet/ring.h"), ("unet/a.cc", "ni/engine/engine.h"), ("unet/a.cc", "drivers/sim/sim.h"),
            ("ni/engine/a.cc", "drivers/sim/sim.h"), ("ni/engine/a.cc", "ni/service/names.h"),
            ("ni/service/a.cc", "drivers/sim/sim.h"), ("unet/wire/a.cc", "unet/ring.h"), ("ipstack/sockets/a.cc", "ni/driver.h"),
            ("drivers/sim/a.cc", "drivers/pcap/file.h"), ("am/a.cc", "am/splitc/job.h"), ("am/a.cc", "ni/driver.h"),
            ("am/splitc/a.cc", "ni/engine/engine.h"), ("ipstack/a.cc", "am/am.h"), ("apps/examples/a.cc", "ni/driver.h"),
            ("apps/bench/a.cc", "<rte_mbuf.h>"), ("unet/a.cc", "<pcap.h>"), ("unet/a.cc", "<catch2/catch.hpp>"),
            ("unet/a.cc", "ring.h"), ("ni/engine/a.cc", "../ring.h"), ("unet/a.cc", "unet/none.h"),
            ("unet/a.cc", "<nlohmann/json.hpp>"), ("ni/engine/a.cc", "<spdlog/spdlog.h>"), ("else/a.cc", "unet/ring.h"),
            ("ni/engine/a.cc", "<drivers/sim/sim.h>"),
        ]
        for path, name in allowed:
            with self.subTest(path=path, name=name):
                self.assertTrue(self.include(path, name))
        for path, name in forbidden:
            with self.subTest(path=path, name=name):
                self.assertFalse(self.include(path, name))

    def test_includes_in_comments_do_not_count(self):
        self.assertEqual(self.code('// #include "drivers/sim/sim.h"\n/*\n#include "drivers/sim/sim.h"\n*/'), [])


class Build(Tree):
    """With a build directory: what meson leaves there, written by hand, and the real compiler."""

    def setUp(self):
        super().setUp()
        self.build = self.root / "build"
        (self.build / "meson-info").mkdir(parents=True)
        self.compiled("unet/ring.cc", "ni/engine/a_test.cc")
        self.write("ni/engine/a_test.cc", "// a_test.cc - a test.\n")
        self.run_as_tests("ni/engine/a_test")

    def compiled(self, *paths):
        (self.build / "compile_commands.json").write_text(json.dumps([
            {"directory": str(self.build), "file": f"../{path}", "output": path.removesuffix(".cc") + ".p/x.o",
             "command": f"c++ -I.. -std=c++20 -Wall -Werror -MD -MQ x.o -MF x.o.d -o x.o -c ../{path}"} for path in paths]))

    def run_as_tests(self, *programs, arguments=()):
        (self.build / "meson-info/intro-tests.json").write_text(json.dumps(
            [{"cmd": [str(self.build / program), *arguments]} for program in programs]))

    def complaints(self, each_alone=False):
        return [(path, rule) for path, _, rule, _ in tidy.check(self.root, self.build, each_alone)]

    def test_a_good_tree_has_no_complaints(self):
        self.assertEqual(self.complaints(), [])
        self.assertEqual(self.complaints(each_alone=True), [])

    def test_a_header_that_needs_another(self):
        self.write("unet/ring.h", GOOD_HEADER.replace("#include <cstdint>\n", "").replace("uint32_t", "std::string"))
        self.write("unet/ring.cc", '// ring.cc - a ring.\n#include <string>\n#include "unet/ring.h"\n')
        self.assertEqual(self.complaints(), [])
        self.assertEqual(self.complaints(each_alone=True), [("unet/ring.h", "alone")])

    def test_a_header_with_a_warning(self):
        self.write("unet/ring.h", GOOD_HEADER + "static inline int f() { int unused; return 1; }\n")
        self.write("unet/ring.cc", "// ring.cc - a ring.\n")
        self.assertEqual(self.complaints(each_alone=True), [("unet/ring.h", "alone")])

    def test_files_that_are_compiled_several_at_a_time(self):
        self.write("unet/first.cc", "// first.cc - first.\n#include <string>\n")
        self.write("unet/second.cc", "// second.cc - second.\nint length(const std::string& text) { return static_cast<int>(text.size()); }\n")
        (self.build / "a-unity0.cpp").write_text(
            f"#include<{self.build}/../unet/first.cc>\n#include<{self.build}/../unet/second.cc>\n")
        self.compiled("unet/ring.cc", "ni/engine/a_test.cc", "build/a-unity0.cpp")
        self.assertEqual(self.complaints(), [])
        self.assertEqual(self.complaints(each_alone=True), [("unet/second.cc", "alone")])

    def test_a_c_header_that_is_not_c(self):
        self.compiled("unet/ring.cc", "ni/engine/a_test.cc", "unet/c.c")
        self.write("unet/c.c", "// c.c - C.\n")
        text = '// unet.h - C.\n#pragma once\n#ifdef __cplusplus\nextern "C" {\n#endif\nX f(void);\n#ifdef __cplusplus\n}\n#endif\n'
        commands = (self.build / "compile_commands.json").read_text().replace(
            "c++ -I.. -std=c++20 -Wall -Werror -MD -MQ x.o -MF x.o.d -o x.o -c ../unet/c.c", "cc -I.. -c ../unet/c.c")
        (self.build / "compile_commands.json").write_text(commands)
        self.write("unet/unet.h", text.replace("X", "int"))
        self.assertEqual(self.complaints(), [])
        self.write("unet/unet.h", text.replace("X f(void)", "bool f(void)"))
        self.assertEqual(self.complaints(), [("unet/unet.h", "alone")])

    def test_files_that_no_build_compiles(self):
        self.write("unet/lost.cc", "// lost.cc - lost.\n")
        self.assertEqual(self.complaints(), [("unet/lost.cc", "meson")])

    def test_tests_that_nobody_runs(self):
        self.run_as_tests()
        self.assertEqual(self.complaints(), [("ni/engine/a_test.cc", "meson")])

    def test_a_test_in_a_program_of_several(self):
        self.run_as_tests("ni/engine/a_test", arguments=["--filenames-as-tags", "[#a_test]"])
        self.assertEqual(self.complaints(), [])
        self.run_as_tests("ni/engine/a_test", arguments=["--filenames-as-tags", "[#b_test]"])
        self.assertEqual(self.complaints(), [("ni/engine/a_test.cc", "meson")])

    def test_fuzz_targets_are_listed(self):
        self.write("tests/fuzz/frame_fuzz.cc", "// frame_fuzz.cc - frames.\n")
        self.write("tests/fuzz/meson.build", "t = {}\n")
        self.assertEqual(self.complaints(), [("tests/fuzz/frame_fuzz.cc", "meson")])
        self.write("tests/fuzz/meson.build", "t = {\n  'frame': [unet_dep],\n}\n")
        self.assertEqual(self.complaints(), [])


class Command(Tree):
    def test_exit_status_and_output(self):
        command = [sys.executable, "-B", tidy.__file__, "--root", str(self.root)]
        good = subprocess.run(command, text=True, capture_output=True)
        self.assertEqual((good.returncode, good.stdout), (0, "tidy: the tree keeps its rules\n"))
        self.write("unet/ring.cc", GOOD_SOURCE + "volatile int x;\n")
        bad = subprocess.run(command, text=True, capture_output=True)
        self.assertEqual(bad.returncode, 1)
        self.assertIn("unet/ring.cc:5: [volatile] ", bad.stdout)
        self.assertIn("1 complaint", bad.stderr)

    def test_a_build_directory_that_is_none(self):
        bad = subprocess.run([sys.executable, "-B", tidy.__file__, "--build", str(self.root)], text=True, capture_output=True)
        self.assertEqual(bad.returncode, 1)
        self.assertIn("not a configured build directory", bad.stderr)


if __name__ == "__main__":
    unittest.main()
