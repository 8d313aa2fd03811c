# tidy_documents.py - documents and code name the same: links, the tests of THREATS.md and of RFCs, socket options, preload.map; for tidy.py.
#
# Each rule takes a tidy.Source and the others of the tree, and yields (line, rule, complaint).
import re


def links(source):
    """Relative links of a document lead to files that exist."""
    if not source.path.endswith(".md"):
        return
    for number, line in enumerate(source.lines, 1):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
            if "://" not in target and not target.startswith("mailto:"):
                yield number, "link", target


THREATS_TEST = re.compile(r"`(\w+_test|\w+\.py|fuzz_\w+)(?:: ([^`]*))?`")
CASE_MIN = 12  # characters of a case's name before `*`
SCRIPTS = re.compile(r"scripts `[^`]+`(?:, `[^`]+`)*")


def threat_blocks(source):
    """The paragraphs and list items of docs/THREATS.md, each on one line: (line, heading, text)."""
    heading, start, block = "", 0, []
    for number, line in enumerate([*source.lines, ""], 1):
        begins = line.startswith(("- ", "#")) or not line.strip()
        if begins and block:
            yield start, heading, " ".join(block)
            block = []
        if line.startswith("#"):
            heading = line
        elif line.strip():
            start = start if block else number
            block.append(line.strip())


def missing_test(name, case, sources):
    """The part of a test's name in a document that the tree lacks; None: nothing is missing. A case may be a beginning and `*`."""
    if name.startswith("fuzz_"):
        endings = (f"_{name.removeprefix('fuzz_')}_fuzz.cc",)
    else:  # the file's name, or meson's test name, which may begin with the directory's name
        endings = (f"_{name}",) if name.endswith(".py") else (f"_{name}.cc",)
    files = [source for source in sources if ("_" + source.path.replace("/", "_")).endswith(endings)]
    if not files:
        return f"there is no test `{name}`"
    if case is None:
        return None
    before, after = ("def ", "(") if name.endswith(".py") else ('TEST_CASE("', '"')
    wanted = before + (case[:-1] if case.endswith("*") else case + after)
    found = sum(wanted in line for file in files for line in file.lines)
    if case.endswith("*") and (len(case) <= CASE_MIN or found > 1):
        return f'`{name}`: "{case}" may be several'
    return None if found else f'`{name}` has no "{case}"'


def missing_scripts(root, text):
    """Scripts of TCP, or directories of them, that the text names and the tree lacks."""
    for script in re.findall(r"`([^`]+)`", " ".join(SCRIPTS.findall(text))):
        if not any(any((root / "ipstack/tcp/scripts").glob(script + ending)) for ending in ("", ".tcp")):
            yield f"there are no scripts `{script}`"


def threats(root, source, sources):
    """Each item of docs/THREATS.md names a test, or says "The same." below one that does, or that nothing stops the lie. Tests exist."""
    if not source.path.endswith("THREATS.md"):
        return
    above = None  # the heading whose last item has a test
    for number, heading, text in threat_blocks(source):
        named = THREATS_TEST.findall(text)
        if text.startswith("- "):
            if not named and not (above == heading and text.endswith(" The same.")) and "nothing stops" not in text:
                yield number, "threats", "no test is named: `file: case; case`"
            above = heading if named or (above == heading and text.endswith(" The same.")) else None
        elif text.startswith("|"):
            yield number, "threats", "a threat is an item of a list, so that its tests are looked for"
        for name, cases in named:
            for case in cases.split("; ") if cases else [None]:
                if missing := missing_test(name, case, sources):
                    yield number, "threats", missing
        for missing in missing_scripts(root, text):
            yield number, "threats", missing


TEST_PREFIX = re.compile(r"'prefix': '(\w*)'|\btest\('(\w*)' \+ name\b|\btest\((name)\b")
TEST_NAME = re.compile(r"\btest\('([\w-]+)',")


def meson_tests(sources):
    """The names of tests in meson.build files: in full, or as the prefix of a directory or loop and a word of the same file."""
    names = set()
    for source in sources:
        if not source.path.endswith("meson.build"):
            continue
        text = "\n".join(source.lines)
        names.update(TEST_NAME.findall(text))
        for in_table, in_loop, _ in TEST_PREFIX.findall(text):
            names.update((in_table or in_loop) + word.replace("/", "_") for word in re.findall(r"'([\w/-]+)'", text))
    return names


def rfc_tests(root, source, sources):
    """The tests, scripts and directories that the table of RFCs in docs/TCPIP.md names exist."""
    if not source.path.endswith("TCPIP.md"):
        return
    tests, files = meson_tests(sources), {each.path for each in sources}
    counts = False
    for number, line in enumerate(source.lines, 1):
        for missing in missing_scripts(root, line):
            yield number, "rfc-test", missing
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
        counts = bool(cells) and (counts or cells[-1] == "test")
        for name in re.findall(r"`([^`]+)`", SCRIPTS.sub("", cells[-1])) if counts else []:
            is_file = any(path == name or path.startswith(name + "/") or path.endswith("/" + name) for path in files)
            if name not in tests and not is_file:
                yield number, "rfc-test", f"there is no test `{name}`"


RFC = re.compile(r"\bRFCs? (\d+)")


def rfcs(source, sources):
    """Each RFC that the code of ipstack/ and unet/wire cites is in docs/TCPIP.md: in the first column of a table, or as `RFC n`."""
    if not source.path.endswith("TCPIP.md"):
        return
    named = {rfc for line in source.lines for rfc in RFC.findall(line)}
    named |= {rfc for line in source.lines if line.startswith("|") for rfc in re.findall(r"\d+", line.split(" | ")[0])}
    for other in sources:
        if other.is_code and other.path.startswith(("ipstack/", "unet/wire/")) and not other.path.endswith("_test.cc"):
            for rfc in sorted({rfc for line in other.lines for rfc in RFC.findall(line)} - named):
                yield 1, "rfc", f"{other.path} cites RFC {rfc}, of which nothing is said here"


# The socket options that the code knows, and the section that documents each.
OPTIONS_DOCUMENT, OPTIONS_SECTION = "docs/SOCKETS.md", "## Options"
OPTIONS_CODE = ["ipstack/sockets/endpoint_stack_options.cc", "ipstack/preload/ancillary.cc", "ipstack/preload/socket_routing.cc",
                "ipstack/preload/socket_calls.cc"]
OPTION = r"\b((?:SO|TCP|UDP|IP|IPV6|MCAST)_[A-Z][A-Z0-9_]*)\b"
OPTION_IN_CODE = re.compile(r"\bname [!=]= " + OPTION + r"|\{(?:SOL_SOCKET|IPPROTO_\w+), " + OPTION)


def socket_options(source, sources):
    """Each option that the code knows is in the document."""
    if source.path != OPTIONS_DOCUMENT:
        return
    at = next((number for number, line in enumerate(source.lines, 1) if line == OPTIONS_SECTION), 0)
    section = []
    for line in source.lines[at:]:
        if line.startswith("## "):
            break
        section += re.findall("`" + OPTION + "`", line)
    for other in sources:
        if other.path in OPTIONS_CODE:
            known = {name for line in other.code for found in OPTION_IN_CODE.findall(line) for name in found if name}
            for name in sorted(known - set(section)):
                yield at or 1, "options", f"{other.path} knows {name}, of which '{OPTIONS_SECTION}' says nothing"


EXPORTS = "ipstack/preload/preload.map"
INTERCEPTED = re.compile(r"^UNET_PRELOAD (?:__attribute__\(\(.*?\)\) )?[^({;]*?(\w+)\(|\bX\((\w+)\)", re.MULTILINE)


def exports(source, sources):
    """preload.map has each function that the library puts in front of the C library's: UNET_PRELOAD, and the list of real.h."""
    if source.path != EXPORTS:
        return
    exported = set(re.findall(r"(\w+);", "\n".join(source.lines)))
    for other in sources:
        if other.is_code and other.path.startswith("ipstack/preload/"):
            for name in sorted({one or two for one, two in INTERCEPTED.findall("\n".join(other.code))} - exported):
                yield 1, "exports", f"{other.path} has {name}(), which no program finds unless it is here"
