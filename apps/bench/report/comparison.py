# comparison.py - reports side by side: unet-bench decides about each row (results/compare.cc), and this draws what it decided.
import json
import os
import subprocess
import sys
from html import escape

from failure import Failure, Usage
from figures import Figure, Point, Series, curves
import measuring
import page as pages
import results

SHOWN = 40  # rows of the figure
WORST = 1.5  # changes beyond this factor do not stretch the figure's axis
SIDE_BY_SIDE = [("rtt", "Round trip of one message"), ("bandwidth", "Bandwidth of a one-way stream"), ("am-rtt", "Active Messages: round trip"),
                ("tcp-stream", "TCP: stream")]
FACTS = [("processor", "processor"), ("kernel", "kernel"), ("DPDK", "DPDK"), ("interfaces", "network interfaces"), ("commit", "commit"),
         ("date", "date")]


def file_of(path):
    return os.path.join(path, "report.json") if os.path.isdir(path) else path


def compared(bench, old, new, noise):
    """Returns the comparison of two reports by unet-bench, and its exit status."""
    done = subprocess.run([bench, "compare", "--old", old, "--new", new, "--noise", noise, "--json", "-"], capture_output=True, text=True,
                          check=False)
    if not done.stdout:
        raise Usage(done.stderr.strip().removeprefix("unet-bench: ") or f"unet-bench compare ended with status {done.returncode}")
    return json.loads(done.stdout), done.returncode


def names_of(reports, files):
    """A name for each, by its file where two have the same."""
    names = [report.name for report in reports]
    return [name if names.count(name) == 1 else os.path.splitext(file)[0].removesuffix("/report") for name, file in zip(names, files)]


def percent(change):
    return "-" if change is None else f"{(change - 1) * 100:+.1f} %"


def interval(row):
    return "-" if row["low"] is None else f"{percent(row['low'])} to {percent(row['high'])}"


def figure_of(outcomes, names):
    """The rows of our code that moved most, with their intervals."""
    most = {}
    for outcome in outcomes:
        for row in outcome["rows"]:
            if row["ours"] and row["low"] is not None and row["change"]:
                most[row["name"]] = max(most.get(row["name"], 0), abs(row["change"] - 1))
    rows = sorted(most, key=most.get, reverse=True)[:SHOWN]
    places, series = {name: at for at, name in enumerate(rows)}, []
    for outcome, name in zip(outcomes, names):
        points = []
        for row in outcome["rows"]:
            if row["name"] in places and row["low"] is not None and row["change"]:
                value, low, high = (min(max(row[each], 1 / WORST), WORST) for each in ("change", "low", "high"))
                tip = f"{name}, {row['name']}: {percent(row['change'])} ({interval(row)}), {row['verdict']}\n{row['old']} then, {row['new']} now"
                points.append(Point(places[row["name"]], value, low, high, tip, percent(row["change"]), row["name"]))
        if points:
            series.append(Series(name, "ours", points))
    if not series:
        return None
    note = f"Changes beyond a factor of {WORST:g} lie at the edge."
    return Figure("dots", "changes", "Rows that differ most, and the 95 % intervals of the differences", "x", series,
                  x_names={at: name for name, at in places.items()}, note=note)


def labelled(report, name, bench):
    rows = [row for row in report.select(bench) if not row.path.startswith(("limit-", "raw-"))]
    return [(row, f"{row.path}{row.metric.removeprefix('rtt').replace('_', ', ') if bench == 'am-rtt' else ''}, {name}") for row in rows]


def add_curves(page, reports, names):
    page.heading("Side by side", "curves")
    for bench, title in SIDE_BY_SIDE:
        pairs = [pair for report, name in zip(reports, names) for pair in labelled(report, name, bench) if pair[0].path in ("local", "memif", "shared",
                 "am-local", "tcp-local")]
        labels = {id(row): label for row, label in pairs}
        figure = curves(f"both-{bench}", title, [row for row, _ in pairs], label_of=lambda row, labels=labels: labels[id(row)])
        if figure is not None:
            page.figure(figure)


def add_verdicts(page, outcome, old, new, key):
    page.heading(f"{new} beside {old}", key)
    page.text(outcome["result"])
    for note in outcome["notes"]:
        page.text(note, "note")
    rows = [[escape(row["name"]), escape(row["reference"] or "-"), escape(row["old"]), escape(row["new"]), percent(row["change"]), interval(row),
             f'<span class="{row["verdict"]}">{row["verdict"]}</span>'] for row in outcome["rows"]]
    same = [row for row in rows if ">same<" in row[-1]]
    head = ["row", "over", old, new, "difference", "95 % interval", "verdict"]
    page.table(head, [row for row in rows if row not in same])
    page.add(f"<details><summary>{len(same)} rows that are the same</summary>{pages.table(head, same)}</details>")
    for words, names in (("Only in the first: ", outcome["only_old"]), ("Only in this one: ", outcome["only_new"])):
        if names:
            page.text(words + "; ".join(names) + ".", "note")


def run(options):
    """Writes the page, and returns the exit status: the gravest of all pairs."""
    bench, files = measuring.find_bench(), [file_of(path) for path in options.reports]
    if len({os.path.realpath(file) for file in files}) < len(files):
        raise Usage("a report is named twice: each is compared with the first one")
    try:
        reports = [results.read(file) for file in files]
    except Failure as failure:
        raise Usage(str(failure)) from None
    outcomes, statuses = zip(*(compared(bench, files[0], file, options.noise) for file in files[1:]))
    pages.drawing.need_library()
    pages.ready(options.directory)
    names = names_of(reports, files)
    page = pages.Page(options.directory)
    page.add(f"<h1>{escape(' and '.join(names))}</h1>")
    page.text("A row is compared by its ratio to a limit, the kernel or a bare driver of the same run, else by its median.", "about")
    page.table(["", *names], [[f"<b>{label}</b>", *(escape(str(report.machine.get(key) or "-")) for report in reports)] for key, label in FACTS],
               "facts")
    figure = figure_of(outcomes, names[1:])
    if figure is not None:
        page.figure(figure)
    for number, (outcome, name) in enumerate(zip(outcomes, names[1:])):
        add_verdicts(page, outcome, names[0], name, f"pair-{number}")
        print(f"{name} beside {names[0]}: {outcome['result']}", file=sys.stderr)
    add_curves(page, reports, names)
    path = os.path.join(options.directory, "index.html")
    results.write_text(page.html(" and ".join(names)), path)
    print(path)
    return 1 if 1 in statuses else max(statuses)
