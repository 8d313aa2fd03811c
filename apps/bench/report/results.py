# results.py - the JSON of a report: reads, checks and writes it, and gives its records as rows with their spread over the rounds.
import json
import math
import os
import statistics
from dataclasses import dataclass, field

from failure import Failure

FORMAT = 1
SHARES = [0.01, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999]  # of the samples of a distribution; kDistribution in results/stats.h
BEFORE_MS = 20  # milliseconds of a timeline before its event; kTimelineBefore in results/report.h
TEXTS = ["bench", "path", "metric", "unit", "baseline", "command"]
SIZE_MAX = 2 ** 32 - 1
FIGURE_MAX = 1e30  # of any unit; what is larger is no figure
TEXT_MAX = 400


@dataclass
class Row:
    """A metric of a path at a size: the median over the rounds, and the least and greatest round."""
    bench: str
    path: str
    metric: str
    size: int
    unit: str
    p50: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p99: float = math.nan
    p999: float = math.nan
    cpu: float = math.nan
    cpu_parts: dict = field(default_factory=dict)
    ratios: dict = field(default_factory=dict)  # baseline -> (median, least, greatest)
    distribution: list = field(default_factory=list)
    timeline: list = field(default_factory=list)
    rounds: int = 0
    command: str = ""
    seconds: str = ""

    @property
    def measured(self):
        return not math.isnan(self.p50)


def is_figure(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < FIGURE_MAX


def clean(text):
    """Printable text of a bounded length: a name becomes a label of a picture."""
    return "".join(character for character in text[:TEXT_MAX] if character.isprintable())


def is_record(record):
    return (isinstance(record, dict) and all(isinstance(record.get(name, ""), str) for name in TEXTS) and record.get("bench")
            and record.get("path") and "p50" in record and isinstance(record.get("size"), int) and 0 <= record["size"] <= SIZE_MAX)


def median_of(values):
    values = [value for value in values if is_figure(value)]
    return statistics.median(values) if values else math.nan


def list_of(records, name, length):
    """The medians of a list that records may have, entry by entry."""
    lists = [record[name] for record in records if isinstance(record.get(name), list) and (not length or len(record[name]) == length)]
    return [median_of(values) for values in zip(*lists)]


def row_of(key, records):
    row = Row(*key)
    values = [record["p50"] for record in records if is_figure(record["p50"])]
    if values:
        row.p50, row.low, row.high = statistics.median(values), min(values), max(values)
    row.rounds = len(values)
    row.p99, row.p999, row.cpu = (median_of([record.get(name) for record in records]) for name in ("p99", "p999", "cpu"))
    row.cpu_parts = {name: median_of([record.get(name) for record in records]) for name in ("cpu_a", "cpu_b", "cpu_services")}
    row.distribution = list_of(records, "distribution", len(SHARES))
    row.timeline = list_of(records, "timeline", 0)
    return row


def rows_of(rounds):
    """The rows of all rounds, in the order in which they were measured. A path has a record for each baseline: one row has them all."""
    groups = {}
    for number, records in enumerate(rounds):
        for record in records:
            key = tuple(record["size"] if name == "size" else clean(record.get(name, "")) for name in ("bench", "path", "metric", "size", "unit"))
            groups.setdefault(key, {}).setdefault(number, []).append(record)
    rows = []
    for key, by_round in groups.items():
        row = row_of(key, [records[0] for records in by_round.values()])
        row.command = repeat_command(row, by_round)
        ratios = {}
        for records in by_round.values():
            for record in records:
                if is_figure(record.get("ratio")) and record.get("baseline"):
                    ratios.setdefault(clean(record["baseline"]), []).append(record["ratio"])
        row.ratios = {name: (statistics.median(values), min(values), max(values)) for name, values in ratios.items()}
        rows.append(row)
    return rows


def repeat_command(row, by_round):
    """The command that measures this row alone, with its baselines."""
    typed = clean(next(iter(by_round.values()))[0].get("command", "")).split()
    if row.bench in ("kernels", "machines"):
        ranks = f" --ranks {row.size}" if row.path != "serial" else " --ranks 1"
        return f"unet-bench kernels --kernel {row.metric} --path {row.path}{ranks}"
    if len(typed) < 2 or typed[1] != "run":
        return " ".join(typed)
    size = f" --size {row.size}" if "--size" in typed or row.size else ""
    return f"unet-bench run {row.bench} --path '{row.path}'{size}"


class Report:
    """The figures of one `unet-bench report`."""

    def __init__(self, content):
        self.content = content
        self.rows = rows_of(content["rounds"])

    @property
    def machine(self):
        return self.content.get("machine", {})

    @property
    def name(self):
        return clean(str(self.content.get("name") or self.machine.get("host") or "report"))

    @property
    def rounds(self):
        return len(self.content["rounds"])

    def select(self, bench, path=None, metric=None, size=None):
        """The rows of a benchmark that have figures. `metric` is a name or a test of names."""
        fits = metric if callable(metric) else lambda name: metric is None or name == metric
        return [row for row in self.rows if row.bench == bench and row.measured and (path is None or row.path == path)
                and fits(row.metric) and (size is None or row.size == size)]

    def find(self, bench, path, metric=None, size=None):
        """One such row or None; without `size` the one with the smallest."""
        rows = self.select(bench, path, metric, size)
        return min(rows, key=lambda row: row.size) if rows else None

    def why_absent(self, benches):
        """Why none of these benchmarks is in the report."""
        reasons = [item["why"] for item in self.content.get("absent", []) if item.get("bench") in benches]
        return "; ".join(dict.fromkeys(reasons)) or "this run did not measure it: unet-bench run " + " ".join(benches)


def new_content(mode, machine):
    return {"report": FORMAT, "mode": mode, "machine": machine, "absent": [], "stopped": "", "rounds": []}


def parse(text, source):
    try:
        content = json.loads(text)
    except ValueError as error:
        raise Failure(f"{source} is no JSON, or its end is missing: {error}") from None
    except RecursionError:
        raise Failure(f"{source} is nested too deeply to be a report") from None
    if isinstance(content, list):  # of `unet-bench run --json`
        first = content[0] if content and isinstance(content[0], dict) else {}
        known = {name: first[name] for name in ("date", "commit") if isinstance(first.get(name), str)}
        content = new_content("run", known | {"processor": str(first.get("machine", "unknown"))}) | {"rounds": [content]}
    if not isinstance(content, dict) or "report" not in content:
        raise Failure(f"{source} is no report: `unet-bench report` and `unet-bench run --json` write such files")
    if content["report"] != FORMAT:
        raise Failure(f"{source} is a report of format {content['report']!r}, and this program reads format {FORMAT}: "
                      "draw it with the unet-bench that measured it")
    rounds = content.get("rounds")
    if not isinstance(rounds, list) or not all(isinstance(records, list) and all(map(is_record, records)) for records in rounds):
        raise Failure(f"{source} has something in it that is no record of unet-bench")
    if not isinstance(content.get("machine", {}), dict) or not is_list_of_absent(content.get("absent", [])) \
            or not isinstance(content.get("hosts", []), list):
        raise Failure(f"{source} does not say what it was measured on as unet-bench does")
    return Report(content)


def is_list_of_absent(items):
    return isinstance(items, list) and all(isinstance(item, dict) and all(isinstance(text, str) for text in item.values())
                                           and "why" in item for item in items)


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read(), path)
    except UnicodeDecodeError:
        raise Failure(f"{path} is no text, and so no report") from None
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None


def write(content, path):
    """Replaces the file as a whole, so that it is complete whenever this process ends."""
    write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", path)


def write_text(text, path):
    write_bytes(text.encode(errors="replace"), path)


def write_bytes(data, path):
    beside = f"{path}.new"
    try:
        with open(beside, "wb") as file:
            file.write(data)
        os.replace(beside, path)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from None
