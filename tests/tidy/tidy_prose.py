#!/usr/bin/env python3
# tidy_prose.py - the English of comments and documents: persons where a noun belongs, and words that docs/GLOSSARY.md replaces.
# By itself it prints what each directory has now, for BUDGET:
#
#   tidy_prose.py [ROOT]
import re
import sys
from pathlib import Path

PERSON = re.compile(r"\b(who|whose|whom|whoever|whosever|whosesoever|somebody|someone|nobody|anybody|everybody|he|him|his|himself)\b", re.I)
GLOSSARY = "docs/GLOSSARY.md"

# The budget of each directory: (persons, words that the glossary replaces). The longest matching name counts. After a rewrite of comments,
# lower the row. A directory without a row may have none.
BUDGET = {
    "docs": (25, 0),
    "ipstack/preload": (1, 9),
    "ni/service": (1, 0),
    "tests/conformance": (0, 2),
    "unet": (0, 2),
}


def texts(source):
    """The comments of code, comment lines of Python, and the text of a document outside of code."""
    if source.path == GLOSSARY or source.path.startswith("tests/tidy/"):
        return []  # they name the words that are counted
    if source.is_code:
        return source.comments
    if source.path.endswith(".py"):
        return [line for line in source.lines if re.match(r"\s*#\s", line)]
    return [line for line in source.lines if not line.startswith("    ")] if source.path.endswith(".md") else []


def replaced_words(sources):
    """The words in backticks in the last column of the glossary, as a pattern; None: there are none."""
    glossary = next((source for source in sources if source.path == GLOSSARY), None)
    rows = [line for line in glossary.lines if line.startswith("| ")] if glossary else []
    words = {word for row in rows for word in re.findall(r"`([a-z ]+)`", row.strip("|").split(" | ")[-1])}
    return re.compile(r"\b(" + "|".join(sorted(map(re.escape, words), key=len, reverse=True)) + r")s?\b") if words else None


def directory_of(path):
    return max((each for each in BUDGET if path.startswith(each + "/")), key=len, default=path.split("/")[0] if "/" in path else ".")


def count_words(sources):
    """directory -> [persons, replaced words], without those that have neither."""
    replaced, found = replaced_words(sources), {}
    for source in sources:
        counts = found.setdefault(directory_of(source.path), [0, 0])
        for text in texts(source):
            counts[0] += len(PERSON.findall(text))
            counts[1] += len(replaced.findall(text)) if replaced else 0
    return {directory: counts for directory, counts in found.items() if any(counts)}


def prose(sources):
    """A complaint for each directory that has more than its budget."""
    for directory, counts in sorted(count_words(sources).items()):
        for count, budget, what in zip(counts, BUDGET.get(directory, (0, 0)), ("persons", f"words that {GLOSSARY} replaces")):
            if count > budget:
                yield f"{directory}: {count} {what}, and its budget is {budget} (BUDGET in tests/tidy/tidy_prose.py)"


if __name__ == "__main__":
    from tidy import read_tree
    root = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).resolve().parents[2]
    for name, (persons, words) in sorted(count_words(read_tree(root)).items()):
        print(f'    "{name}": ({persons}, {words}),')
