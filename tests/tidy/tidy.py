#!/usr/bin/env python3
# tidy.py - the rules of the tree as a test: which layer may include which, banned words, what the build and the documents list.
#
#   tidy.py [--root DIR] [--build DIR [--alone]]
#
# Prints one line per complaint, `FILE:LINE: [rule] what is wrong and what to do`, and exits with 1 if there is any.
# Without --build, the rules that need a configured build directory are left out; without --alone, that each file compiles by itself, which
# takes an hour of two slow cores.
#
# A line that has to break a rule says so, on the line itself or on the one before:
#   // tidy: allow RULE because REASON        (RULE is the word in brackets of the complaint)
import argparse
import concurrent.futures
import fnmatch
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tidy_documents import exports, links, rfc_tests, rfcs, socket_options, threats
from tidy_prose import prose

# ---- The tables. To extend the tree, extend these. ----------------------------------------------------------------

# The permitted includes of each directory, the lowest layer first. The first matching row counts. A file may include headers of its own
# directory with the same row, and what the row names: files, or directories with all below them. `*` does not cross `/`.
INCLUDE_TABLE = [
    # directory          may include
    ("unet/base",        []),
    ("unet/wire",        ["unet/base"]),
    ("unet",             ["unet/base", "unet/wire"]),
    ("ipstack/ip",       ["unet/base", "unet/wire"]),
    ("ipstack/tcp",      ["unet/base", "unet/wire"]),
    ("ipstack/sockets",  ["unet", "ipstack/ip", "ipstack/tcp"]),
    ("ipstack/preload",  ["unet", "ipstack/ip", "ipstack/tcp", "ipstack/sockets"]),
    ("ni/engine",        ["unet", "ipstack/ip", "ipstack/tcp", "ni/*.h"]),
    ("ni/service",       ["unet", "ipstack/ip", "ipstack/tcp", "ni/*.h", "ni/engine"]),
    ("ni",               ["unet"]),
    ("drivers/*",        ["unet", "ni/*.h", "drivers/*.h"]),
    ("am/splitc",        ["unet", "am/*.h", "am/rpc/fiber"]),
    ("am/rpc/fiber",     ["unet"]),
    ("am/rpc/port",      ["unet", "am/*.h", "am/rpc/fiber"]),
    ("am/rpc/task",      ["unet", "am/*.h", "am/rpc/codec.h"]),
    ("am/rpc",           ["unet", "am/*.h", "am/rpc/fiber"]),
    ("am",               ["unet"]),
    ("fabric",           ["unet", "am/*.h"]),
    ("python/unet",      ["unet"]),
    ("apps/examples",    ["unet", "ipstack", "am"]),
    ("apps",             ["unet", "ipstack", "ni", "drivers", "am"]),
    ("tests",            ["unet", "ipstack", "ni", "drivers", "am", "fabric", "apps"]),
]

# Headers of other projects that not every directory may use. (header, where it may be included)
EXTERNAL_TABLE = [
    ("rte_*",          ["drivers"]),
    ("pcap*",          ["drivers"]),
    ("xdp/*",          ["drivers"]),
    ("pmix*",          ["am/splitc/launcher_pmix.cc"]),
    ("boost/*",        ["am/rpc/fiber"]),
    ("rdma/*",         ["fabric", "apps/bench/paths/fabric", "tests"]),
    ("catch2/*",       ["*_test.cc", "tests"]),
    ("CLI/*",          ["apps"]),
    ("grpcpp/*",       ["apps/bench/rivals"]),
    ("capnp/*",        ["apps/bench/rivals"]),
    ("mpi.h",          ["apps/kernels/mpi", "apps/bench/rivals", "tests/system"]),
    ("nlohmann/*",     ["apps", "ni/service", "tests", "*_test.cc"]),
    ("toml++/*",       ["apps", "ni/service"]),
    ("spdlog/*",       ["apps", "ni/service", "drivers"]),
]

# Made by the build, so not in the tree.
GENERATED_HEADERS = {"unet/version_number.h", "apps/bench/commit.h"}

# The directories of apps/bench on which the others build, lowest first.
BENCH_ROOMS = ["apps/bench/results", "apps/bench/machine", "apps/bench/frame", "apps/bench/workloads"]
INCLUDE_TABLE[:0] = [
    ("apps/bench/results", ["unet", "apps/bench/commit.h"]),
    ("apps/bench/machine", ["unet"] + BENCH_ROOMS[:1]),
    ("apps/bench/frame", ["unet"] + BENCH_ROOMS[:2]),
    ("apps/bench/workloads", ["unet"] + BENCH_ROOMS[:3]),
    ("apps/bench/rivals", []),
    ("apps/bench/paths", ["unet", "ni", "drivers", "am", "ipstack", "apps/*.h", "apps/bench/rivals"] + BENCH_ROOMS[:4]),
    ("apps/bench/benchmarks", ["unet", "am", "ipstack/tcp"] + BENCH_ROOMS[:4]),
    ("apps/bench/programs", ["unet", "am", "apps/bench/benchmarks"] + BENCH_ROOMS[:4]),
    ("apps/bench/two_hosts", ["unet"] + BENCH_ROOMS[:2]),
    ("apps/bench/plot", ["unet"] + BENCH_ROOMS[:2]),
    ("apps/bench", ["unet", "ni", "drivers", "am", "ipstack", "apps/*.h", "apps/bench"]),
]

# The namespace of a directory's headers (C headers have none). The first row counts.
NAMESPACES = [
    ("ni/engine", "unet::engine"), ("ni/service", "unet::service"), ("ni", "unet"), ("unet", "unet"), ("drivers", "unet::drivers"),
    ("ipstack/tcp", "unet::tcp"), ("ipstack/sockets", "unet::sockets"), ("ipstack/preload", "unet::preload"), ("ipstack", "unet::ip"),
    ("am/splitc", "unet::splitc"), ("am/rpc/fiber", "unet::fiber"), ("am/rpc", "unet::rpc"), ("am", "unet::am"), ("fabric", "unet::fabric"), ("apps/bench", "unet::bench"),
]

DATA_PATH = ["ni/engine", "drivers"]
LIBRARIES = ["unet", "ipstack", "ni", "drivers", "am", "fabric"]

# Words in code (not in comments or strings) that need a reason: (rule, regular expression, where, why).
BANNED = [
    ("volatile", r"(?<!asm )(?<!__asm__ )\bvolatile\b", [], "use std::atomic with an explicit order"),
    ("if-0", r"^\s*#\s*if\s+0\b", [], "remove dead code; git keeps it"),
    ("ranges", r"#\s*include\s*<ranges>|\bstd::ranges\b", [], "the toolchains we support disagree on <ranges>"),
    ("format", r"#\s*include\s*<format>|\bstd::v?format\b", [], "use fmt"),
    ("assert", r"#\s*include\s*<(cassert|assert\.h)>|(?<![\w.])assert\s*\(", [], "use unet/base/check.h: it stays in release"),
    ("using-namespace-std", r"\busing\s+namespace\s+std\s*;", [], "name what is used"),
    ("seq_cst", r"(?<!_fence\(std::)\bmemory_order(_|::)seq_cst\b", [],
     "name the weaker order, use a fence, or say why this must be total"),
    ("throw", r"\bthrow\b", LIBRARIES, "return unet::Result for set-up, count it on the data path"),
    ("iostream", r"#\s*include\s*<iostream>|\bstd::c(out|err)\b", LIBRARIES, "a library does not print; return an error"),
    ("std::function", r"\bstd::function\b", DATA_PATH, "it allocates; use a template, a pointer or a virtual call"),
    ("shared_ptr", r"\b(std::shared_ptr|make_shared)\b", ["ni/engine", "drivers/dpdk"], "ownership on the data path is single"),
    ("lock", r"\bstd::(mutex|recursive_mutex|shared_mutex|lock_guard|unique_lock|scoped_lock|condition_variable)\b",
     ["ni/engine"], "no lock on the data path"),
    ("sleep", r"\b(usleep|nanosleep|sleep_for|sleep_until)\b", DATA_PATH, "who drives the engine decides how it idles"),
    ("clock", r"\b(clock_gettime|gettimeofday|(steady|system|high_resolution)_clock)\b",
     ["unet/wire", "ni/engine", "drivers/sim", "drivers/faulty", "am", "ipstack"], "take `now` as an argument"),
    ("getenv", r"(?<!\w)getenv\s*\(", LIBRARIES, "use secure_getenv(): a program may have more rights than its caller"),
    ("random", r"\b(s?rand\s*\(|random_device)", LIBRARIES, "use a generator with a seed that the caller gives"),
]

# Words banned in every text of the project.
BANNED_TEXT = [
    ("to-do", re.compile(r"\b(TODO|FIXME|XXX)\b"), "do it, or open an issue"),
    ("machine-path", re.compile(r"(?<![\w.$}-])/(work|root|home/\w+|Users/\w+)/"), "no paths of one machine"),
]

BAD_FILE_NAMES = ["util.*", "utils.*", "*_utils.*", "common.*", "helper.*", "helpers.*", "misc.*"]
MAX_LINES = 600
MAX_COLUMNS = 140

CODE = {".h", ".cc", ".c"}
TEXT = CODE | {".py", ".md", ".txt", ".build", ".sh", ".toml", ".supp", ".json", ".1", ".7", ".8", ".map", ""}

# ---- Reading the tree ---------------------------------------------------------------------------------------------


class Source:
    """One file of the tree: its text, and for code also the text without comments and strings, line by line."""

    def __init__(self, root, path):
        self.path = path
        self.lines = (root / path).read_text(encoding="utf-8", errors="replace").split("\n")
        if self.lines and self.lines[-1] == "":
            self.lines.pop()
        self.is_code = Path(path).suffix in CODE
        text = "\n".join(self.lines)
        self.code = blank(text, strings=True).split("\n") if self.is_code else []
        self.includes = list(find_includes(blank(text, strings=False))) if self.is_code else []
        self.comments = [match.group(0) for match in TOKEN.finditer(text) if match.group(0)[0] == "/"] if self.is_code else []


TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'                              # comments
    r'|R"(?P<d>[^()\\\s]*)\(.*?\)(?P=d)"'              # raw strings
    r'|"(?:\\.|[^"\\\n])*"'                            # strings
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",           # characters, but not the marks in 1'000
    re.DOTALL)


def blank(text, strings):
    """The text with comments (and strings, if asked) replaced by blanks; line numbers stay."""
    def blanks(match):
        token = match.group(0)
        if token[0] != "/" and not strings:
            return token
        # An #include keeps its name: it looks like a string.
        return re.sub(r"[^\n]", " ", token)
    return TOKEN.sub(blanks, text)


def find_includes(text):
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
        if match:
            yield number, match.group(1) or match.group(2), match.group(1) is not None


def read_tree(root):
    """Every text file of the project, without hidden directories and those that builds make."""
    sources = []
    for directory, subdirectories, names in os.walk(root):
        made = ("build", "obj-") if Path(directory) == root else "" if Path(directory) == root / "debian" else ()
        subdirectories[:] = sorted(name for name in subdirectories
                                   if name != "__pycache__" and not name.startswith(made)
                                   and (not name.startswith(".") or name == ".ci"))
        for name in sorted(names):
            path = (Path(directory) / name).relative_to(root)
            if path.suffix in TEXT and not name.startswith(".") and not (root / path).is_symlink():
                sources.append(Source(root, path.as_posix()))
    return sources


def inside(path, pattern):
    """Is the file `path` what the pattern names, or below the directory that it names?"""
    parts, wanted = path.split("/"), pattern.split("/")
    if len(wanted) == 1 and "*" in pattern:
        return fnmatch.fnmatch(parts[-1], pattern)
    if len(parts) < len(wanted):
        return False
    if pattern.endswith(".h") and len(parts) != len(wanted):
        return False
    return all(fnmatch.fnmatch(part, want) for part, want in zip(parts, wanted))


# ---- Rules on one file: each yields (line, rule, message) ---------------------------------------------------------


def first_line(source):
    if not source.is_code:
        return
    name = source.path.rsplit("/", 1)[-1]
    line = source.lines[0] if source.lines else ""
    if not re.match(rf"// {re.escape(name)} - \S", line):
        yield 1, "first-line", f"the first line must be `// {name} - what it is, who uses it`"


def pragma_once(source):
    if "/pch/" in source.path:  # compiled as a main file, where g++ warns about #pragma once
        return
    if source.path.endswith(".h") and "#pragma once" not in source.lines:
        yield 1, "pragma-once", "a header needs `#pragma once`"


def file_name(source):
    name = source.path.rsplit("/", 1)[-1]
    if source.is_code and not re.fullmatch(r"[a-z0-9_]+\.(h|cc|c)", name):
        yield 1, "file-name", "files are snake_case.{h,cc,c}"
    if any(fnmatch.fnmatch(name, bad) for bad in BAD_FILE_NAMES):
        yield 1, "file-name", f"`{name}` says nothing: name the file after what it holds"


def shape(source):
    if len(source.lines) > MAX_LINES:
        yield MAX_LINES + 1, "file-length", f"{len(source.lines)} lines; split the file (limit {MAX_LINES})"
    for number, line in enumerate(source.lines, 1):
        if "\t" in line:
            yield number, "tab", "indent with blanks"
        if line != line.rstrip():
            yield number, "trailing-blank", "remove blanks at the end of the line"
        if source.is_code and len(line) > MAX_COLUMNS:
            yield number, "line-length", f"{len(line)} columns (limit {MAX_COLUMNS})"


def namespace(source):
    if not source.path.endswith(".h") or is_c_header(source):
        return
    for directory, name in NAMESPACES:
        if inside(source.path, directory):
            if not any(re.match(rf"\s*namespace {name}\b", line) for line in source.code):
                yield 1, "namespace", f"what a header in {directory}/ declares belongs to namespace {name}"
            return


def is_c_header(source):
    """A header that C may include has extern "C" for C++."""
    return source.path.endswith(".h") and any(re.match(r'\s*extern "C" \{', line) for line in source.lines)


def banned_words(source):
    for rule, pattern, where, why in BANNED:
        if where and not any(inside(source.path, each) for each in where):
            continue
        if source.path.endswith("_test.cc") and rule in ("iostream", "lock", "sleep", "clock"):
            continue  # a test may wait, look at the clock and print
        if rule == "getenv" and (source.path.endswith("_test.cc") or Path(source.path).name.startswith("test_")):
            continue  # a test has the rights of its caller
        for number, line in enumerate(source.code, 1):
            if re.search(pattern, line):
                yield number, rule, why


def banned_text(source):
    if source.path.startswith("tests/tidy/"):
        return  # this file names the banned words
    for rule, pattern, why in BANNED_TEXT:
        for number, line in enumerate(source.lines, 1):
            if pattern.search(line):
                yield number, rule, why


# How many arguments these calls of an atomic have when the memory order is left to the default.
ATOMIC_CALLS = {"load": 0, "store": 1, "exchange": 1, "compare_exchange_weak": 2, "compare_exchange_strong": 2,
                "fetch_add": 1, "fetch_sub": 1, "fetch_and": 1, "fetch_or": 1, "fetch_xor": 1, "test_and_set": 0}
ATOMIC_CALL = re.compile(rf"(?:\.|->)({'|'.join(ATOMIC_CALLS)})\s*\(")


def atomic_order(source):
    """In a file that uses std::atomic, a call that may be an atomic's names its memory order."""
    text = "\n".join(source.code)
    if "std::atomic" not in text:
        return
    for match in ATOMIC_CALL.finditer(text):
        if count_arguments(text, match.end()) == ATOMIC_CALLS[match.group(1)]:
            yield text.count("\n", 0, match.start()) + 1, "atomic-order", f"{match.group(1)}() without a memory order"


def count_arguments(text, at):
    """The number of arguments of the call with its `(` just before `at`."""
    depth, commas, empty = 1, 0, True
    for character in text[at:]:
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(character, 0)
        if depth == 0:
            break
        commas += depth == 1 and character == ","
        empty = empty and character.isspace()
    return 0 if empty else commas + 1


def includes(source):
    row = row_of(source.path)
    for number, name, quoted in source.includes:
        project_header = quoted or re.match(r"(unet|ipstack|ni|drivers|am|apps|tests)/", name)
        if not project_header:
            for pattern, where in EXTERNAL_TABLE:
                if inside_external(name, pattern) and not any(inside(source.path, each) for each in where):
                    yield number, "include", f"<{name}> belongs in {' and '.join(where)} only"
            continue
        if "/" not in name or name.startswith("."):
            yield number, "include", f'write "{name}" from the repository root: #include "unet/base/result.h"'
        elif row is None:
            yield number, "include", f"{source.path} is in no row of the include table"
        elif not may_include(row, source.path, name):
            yield number, "include", f"{row[0]} may not include {name} (INCLUDE_TABLE in tests/tidy/tidy.py)"


def row_of(path):
    return next((row for row in INCLUDE_TABLE if inside(path, row[0])), None)


def inside_external(name, pattern):
    return fnmatch.fnmatch(name, pattern)


def may_include(row, path, name):
    directory, allowed = row
    own = "/".join(path.split("/")[:directory.count("/") + 1])
    return (inside(name, own) and row_of(name) == row) or any(inside(name, pattern) for pattern in allowed)


FILE_RULES = [first_line, pragma_once, file_name, shape, namespace, banned_words, banned_text, atomic_order, includes]

ALLOW = re.compile(r"(?://|#) tidy: allow (\S+) because \S")
ALLOW_IN_DOCUMENT = re.compile(r"<!-- tidy: allow (\S+) because \S")


def check_files(root, sources):
    known = {source.path for source in sources} | GENERATED_HEADERS
    for source in sources:
        found = [complaint for rule in FILE_RULES for complaint in rule(source)]
        for number, name, quoted in source.includes:
            if quoted and "/" in name and name not in known:
                found.append((number, "include", f"there is no {name}"))
        for number, rule, target in links(source):
            if not (root / source.path).parent.joinpath(target).exists():
                found.append((number, rule, f"the link leads nowhere: {target}"))
        found += threats(root, source, sources)
        found += rfc_tests(root, source, sources)
        found += rfcs(source, sources)
        found += socket_options(source, sources)
        found += exports(source, sources)
        allow = ALLOW_IN_DOCUMENT if source.path.endswith(".md") else ALLOW
        allowed = {number: match.group(1) for number, line in enumerate(source.lines, 1)
                   if (match := allow.search(line)) and not source.path.startswith("tests/tidy/")}
        used = set()
        for number, rule, message in sorted(found):
            excuse = next((at for at in (number, number - 1) if allowed.get(at) == rule), None)
            if excuse is None:
                yield source.path, number, rule, message
            else:
                used.add(excuse)
        for number in sorted(set(allowed) - used):
            yield source.path, number, "allow", f"nothing here needs `allow {allowed[number]}`"


# ---- Rules that need the build ------------------------------------------------------------------------------------


def read_commands(build, root):
    """From compile_commands.json: source file relative to the root -> (directory, arguments, output). Files of one unity source share one
    command."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        directory = Path(entry["directory"])
        file = Path(os.path.normpath(directory / entry["file"]))
        command = (directory, shlex.split(entry["command"]), entry.get("output", ""))
        for path in several(file) if MANY_FILES.search(file.name) else [file]:
            if root in path.parents:
                commands[path.relative_to(root).as_posix()] = command
    return commands


MANY_FILES = re.compile(r"-unity\d+\.(c|cpp)$")


def several(file):
    return [Path(os.path.normpath(path)) for path in re.findall(r"^#include<(.*)>", file.read_text(), re.MULTILINE)]


def runs_test(run, program, path):
    """Does the command RUN, words, run the test PATH in PROGRAM? A tag `[#FILE]` runs the tests of this file alone."""
    files = [word for word in run if word.startswith("[#")]
    return program in run and (not files or f"[#{Path(path).stem}]" in files)


def unlisted(sources, commands, build):
    """Every source file is compiled by the build, and every *_test.cc is a test that meson runs."""
    runs = [[os.path.relpath(word, build) if word.startswith("/") else word for word in test["cmd"]]
            for test in json.loads((build / "meson-info/intro-tests.json").read_text())]
    for source in sources:
        path = source.path
        if not source.is_code or path.endswith(".h"):
            continue
        if path.endswith("_fuzz.cc"):  # only compiled by clang: the table in meson.build has its name
            listing = next((s for s in sources if s.path == path.rsplit("/", 1)[0] + "/meson.build"), None)
            name = path.rsplit("/", 1)[-1].removesuffix("_fuzz.cc")
            if listing is None or not any(f"'{name}':" in line for line in listing.lines):
                yield path, 1, "meson", "not in fuzz_targets of its meson.build"
        elif path not in commands:
            yield path, 1, "meson", "no meson.build compiles this file"
        elif path.endswith("_test.cc") and not any(runs_test(run, commands[path][2].split(".p/")[0], path) for run in runs):
            yield path, 1, "meson", "meson builds this test but does not run it: test() is missing"


def header_command(header, commands, as_c):
    """The compiler's command for a header: the flags of the nearest source file."""
    suffix = ".c" if as_c else ".cc"

    def distance(path):
        shared = os.path.commonprefix([path.split("/")[:-1], header.split("/")[:-1]])
        # A test has more include directories than the header's users, so prefer other sources.
        return (-len(shared), path.endswith("_test.cc"), path)
    candidates = sorted((path for path in commands if path.endswith(suffix)), key=distance)
    if not candidates:
        return None
    directory, command = syntax_command(*commands[candidates[0]][:2], as_c)
    if not as_c and "clang" not in " ".join(command[:2]):
        command.insert(-1, "-Wsubobject-linkage")  # g++ does not warn about this in files that are compiled several at a time
    return directory, command


def syntax_command(directory, arguments, as_c):
    """The flags of that compiler for code from standard input."""
    kept, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in ("-o", "-MQ", "-MF", "-MT", "-include", "-include-pch"):  # also drops the precompiled header
            skip = True
        elif argument not in ("-c", "-MD", "-MMD", "-fpch-preprocess") and not argument.startswith(("-O", "-g")) \
                and not (argument.endswith((".c", ".cc", ".cpp")) and not argument.startswith("-")):
            kept.append(argument)
    # Every include is written from the root, whatever the flags of that source file were.
    return directory, kept + [f"-I{Path(__file__).resolve().parents[2]}", "-fsyntax-only", "-x", "c" if as_c else "c++", "-"]


def compiles_alone(path, commands, as_c):
    found = syntax_command(*commands[path][:2], as_c) if path in commands else header_command(path, commands, as_c)
    if found is None:
        return None
    directory, command = found
    result = subprocess.run(command, cwd=directory, input=f'#include "{path}"\n', text=True, capture_output=True)
    if result.returncode == 0:
        return None
    errors = [line for line in result.stderr.splitlines() if "error" in line]
    return f"does not compile alone{' as C' if as_c else ''}: {errors[0] if errors else result.stderr.strip()[:200]}"


def headers_as_c(sources):
    return [(source.path, True) for source in sources if is_c_header(source)]


def every_file(sources, commands):
    """Each header compiles alone, and each source file of the build, which otherwise compiles only behind others in a unity source."""
    return [(source.path, source.path.endswith(".c")) for source in sources if source.path.endswith(".h") or source.path in commands]


def alone(files, commands):
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        jobs = [(path, pool.submit(compiles_alone, path, commands, as_c)) for path, as_c in files]
        for path, job in jobs:
            if job.result() is not None:
                yield path, 1, "alone", job.result()


def libraries(build):
    """A client that links libunet does not link DPDK, nor anything else that only the NI needs."""
    library = build / "unet/libunet.so"
    if not library.exists():
        return
    dynamic = subprocess.run(["readelf", "-d", library], text=True, capture_output=True, check=True).stdout
    for needed in re.findall(r"NEEDED.*\[(.*)\]", dynamic):
        if re.match(r"librte_|libpcap|libspdlog|libtoml", needed):
            yield "unet/meson.build", 1, "libunet", f"libunet.so links {needed}; only the NI may"


def check_build(root, build, sources, each_alone):
    commands = read_commands(build, root)
    yield from unlisted(sources, commands, build)
    yield from alone(headers_as_c(sources) + (every_file(sources, commands) if each_alone else []), commands)
    yield from libraries(build)


def check(root, build=None, each_alone=False, sources=None):
    """All complaints about the tree, as (path, line, rule, message). `sources`: the tree, if it was read."""
    root = Path(root).resolve()
    sources = sources or read_tree(root)
    complaints = list(check_files(root, sources))
    if build is not None:
        complaints += check_build(root, Path(build).resolve(), sources, each_alone)
    return complaints


def main():
    parser = argparse.ArgumentParser(description="check the rules of the tree")
    parser.add_argument("--root", default=Path(__file__).resolve().parents[2], type=Path)
    parser.add_argument("--build", type=Path, help="a configured build directory")
    parser.add_argument("--alone", action="store_true", help="compile each file by itself, too")
    options = parser.parse_args()
    if options.alone and not options.build:
        parser.error("--alone needs --build")
    if options.build and not (options.build / "compile_commands.json").exists():
        sys.exit(f"tidy: {options.build} is not a configured build directory (no compile_commands.json)")
    sources = read_tree(options.root.resolve())
    complaints = check(options.root, options.build, options.alone, sources)
    complaints += [("tests/tidy/tidy_prose.py", 1, "prose", message) for message in prose(sources)]
    for path, line, rule, message in complaints:
        print(f"{path}:{line}: [{rule}] {message}")
    if complaints:
        sys.exit(f"tidy: {len(complaints)} complaints")
    print("tidy: the tree keeps its rules")


if __name__ == "__main__":
    main()
