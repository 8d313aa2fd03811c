# figures.py - what a figure shows, without a word about how it is drawn: drawing.py draws these, page.py makes their tables.
import math
from dataclasses import dataclass, field

import units

FAMILIES = [("limit-", "limit"), ("serial", "limit"), ("raw-", "raw"), ("kernel-", "kernel"), ("programs-kernel-", "kernel"), ("mpi", "kernel"),
            ("rpc-grpc", "kernel"), ("rpc-capnp", "kernel"), ("rpc-pipe", "kernel"), ("pipe-", "kernel"), ("file-pipe", "kernel"),
            ("file-memory", "kernel")]


@dataclass
class Point:
    x: float
    y: float
    low: float
    high: float
    tip: str  # what hovering over it shows; the last line is the command that repeats it, if there is one
    text: str = ""  # its cell of the table
    column: str = ""  # the head of that cell's column


@dataclass
class Series:
    label: str
    family: str  # ours, limit, raw, kernel or published: decides line and marker
    points: list = field(default_factory=list)
    colour: str = ""  # of published figures: their number within the figure


@dataclass
class Figure:
    kind: str  # curves, dots, shares, timeline, matrix
    name: str  # of its files
    title: str
    unit: str  # of the figures' axis: units.py
    series: list
    x_label: str = ""
    log_x: bool = False
    log_y: bool = False
    x_names: dict = field(default_factory=dict)  # curves: text of a tick by its place; dots, matrix: text of a row by its number
    note: str = ""

    @property
    def points(self):
        return [point for series in self.series for point in series.points]


def family_of(path):
    return next((family for begin, family in FAMILIES if path.startswith(begin)), "ours")


def tip_of(row, label, where, value):
    """Returns the text that a point shows under the pointer."""
    lines = [f"{label}, {where}: {value}" if where else f"{label}: {value}"]
    if row.unit == "ns" and not math.isnan(row.p99) and row.p99 != row.p50:
        lines.append(f"99th percentile {units.value_text(row.p99, row.unit)}")
    lines += [f"{units.ratio_text(ratio[0])} x of {name}" for name, ratio in row.ratios.items()]
    if not math.isnan(row.cpu):
        lines.append(f"processor time {row.cpu:.3g} ns for each")
    return "\n".join(lines + ([row.command] if row.command else []))


def point_of(row, x, label, where):
    text = units.spread_text(row)
    return Point(x, row.p50, row.low, row.high, tip_of(row, label, where, text), text, where)


def ratio_point(row, baseline, x, label, where):
    ratio, low, high = row.ratios[baseline]
    text = units.ratio_text(ratio) + (f" ({units.ratio_text(low)} - {units.ratio_text(high)})" if row.rounds > 1 else "")
    return Point(x, ratio, low, high, tip_of(row, label, where, f"{text} x of {baseline}"), text, where)


def is_wide(points):
    """Values that differ by a factor of ten need a logarithm."""
    values = [point.y for point in points if point.y > 0]
    return bool(values) and len(values) == len(points) and max(values) > 10 * min(values)


def positive(points):
    return [point for point in points if point.y > 0]


def curves(name, title, rows, x_label="message size", x_of=None, where=units.size_text, label_of=None, log_x=True):
    """A curve for each path over x, by default the size; None: no rows."""
    series = {}
    for row in rows:
        label = label_of(row) if label_of else row.path
        x = x_of(row) if x_of else row.size
        if x is None or (log_x and x <= 0):
            continue
        line = series.setdefault(label, Series(label, family_of(row.path)))
        line.points.append(point_of(row, x, label, where(x)))
    for line in series.values():
        line.points.sort(key=lambda point: point.x)
    points = [point for line in series.values() for point in line.points]
    if not points:
        return None
    log_y = is_wide(points)
    names = {point.x: where(point.x) for point in points}
    return Figure("curves", name, title, rows[0].unit, list(series.values()), x_label, log_x and len(names) > 1, log_y, dict(sorted(names.items())))


def dots(name, title, rows, row_of, series_of, baseline_of=None, note=""):
    """A row for each text of `row_of`, a dot in it for each text of `series_of`; ratios over `baseline_of` instead of values."""
    names, series = {}, {}
    for row in rows:
        baseline = baseline_of(row) if baseline_of else None
        if baseline_of and baseline not in row.ratios:
            continue
        text, label = row_of(row), series_of(row)
        at = names.setdefault(text, len(names))
        dot = series.setdefault(label, Series(label, family_of(row.path)))
        dot.points.append(ratio_point(row, baseline, at, label, text) if baseline_of else point_of(row, at, label, text))
    points = [point for line in series.values() for point in line.points]
    if not points:
        return None
    unit = "x" if baseline_of else rows[0].unit
    return Figure("dots", name, title, unit, list(series.values()), log_x=is_wide(points), x_names={at: text for text, at in names.items()},
                  note=note)


def matrix(name, title, rows, labels, ends_of):
    """A cell for each pair of hosts; `labels` has their texts, and `ends_of` gives the two of a path."""
    places = {host: at for at, host in enumerate(labels)}
    series = {host: Series(label, "ours") for host, label in labels.items()}
    for row in rows:
        one, other = ends_of(row.path)
        series[one].points.append(point_of(row, places[other], row.path, labels[other]))
    return Figure("matrix", name, title, rows[0].unit, list(series.values()), log_y=is_wide([each for line in series.values() for each in line.points]),
                  x_names=dict(enumerate(labels.values())))


def odds(share):
    """A scale that shows both ends of a distribution: a step for each factor of ten."""
    return math.log10(share / (1 - share))


def shares(name, title, rows, shares_of):
    """The distribution of single latencies of each row."""
    series = []
    for row in rows:
        points = []
        for share, value in zip(shares_of, row.distribution):
            if not math.isnan(value) and value > 0:
                where = f"{share * 100:g} %"
                text = units.value_text(value, row.unit)
                points.append(Point(value, odds(share), value, value, f"{row.path}: {where} take at most {text}\n{row.command}", text,
                                    where))
        if points:
            series.append(Series(row.path, family_of(row.path), points))
    if not series:
        return None
    return Figure("shares", name, title, rows[0].unit, series, "time", True)


def timeline(name, title, rows, before):
    """Messages in each millisecond."""
    series = []
    for row in rows:
        points = [Point(at - before, value, value, value, f"{row.path}, {at - before} ms: {value:g} messages\n{row.command}",
                        f"{value:g}", f"{at - before} ms") for at, value in enumerate(row.timeline) if not math.isnan(value)]
        if points:
            series.append(Series(row.path, family_of(row.path), points))
    if not series:
        return None
    return Figure("timeline", name, title, "messages/ms", series, "milliseconds after the event")
