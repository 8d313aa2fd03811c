# pairs.py - what a report shows of hosts: matrices of all pairs, how the two ways of a pair differ, and the rounds over time.
import statistics

from figures import curves, dots, matrix
from results import Row, clean, is_figure
import units

TITLES = {"hosts-rtt": "Round trip between hosts", "hosts-bandwidth": "Stream as received", "hosts-lost": "Messages of a stream that were lost"}
LOADS = {"": "", "load": ", under load"}
ABOUT = """Each host measures to each other; both sides sleep while they wait. A round trip is the sum of both ways, so it cannot tell how long one way
takes: clocks that differ by a constant change no sum. Streams tell the rate and the loss of each way alone, because the receiver counts. Messages of two
sizes with short answers tell how much longer a large message takes each way than a small one, because what is constant cancels. A constant difference
between the two ways remains unknown: it is at most the least round trip."""
MOMENTS = 200  # of the figure over time, at most; more rounds are drawn together


def ends(path):
    """The two hosts of a path, or None."""
    found = clean(path).split(" > ")
    return tuple(found) if len(found) == 2 else None


def hosts_of(report):
    """All hosts, in the order in which they measured first."""
    pairs = [ends(row.path) for row in report.rows if row.bench.startswith("hosts-") and ends(row.path)]
    return list(dict.fromkeys([pair[0] for pair in pairs] + [pair[1] for pair in pairs]))


def values_of(report):
    """The figures of each round, by benchmark, metric, size and the two hosts."""
    return [{(record["bench"], record.get("metric", ""), record["size"], *ends(record["path"])): record["p50"] for record in records
             if record["bench"].startswith("hosts-") and ends(record["path"]) and is_figure(record["p50"])} for records in report.content["rounds"]]


def errors(report):
    """The pairs that the newest round could not measure, and why."""
    return {ends(record["path"]): str(record.get("why", "")) for record in report.content["rounds"][-1]
            if record["bench"] == "hosts-error" and ends(record["path"])} if report.rounds else {}


def silent(report):
    """The hosts that the newest round did not measure at all, and why."""
    missed, hosts = errors(report), hosts_of(report)
    found = {host: [why for pair, why in missed.items() if host in pair] for host in hosts}
    return {host: whys[0] for host, whys in found.items() if len(whys) == 2 * (len(hosts) - 1)}


def matrices(report):
    hosts, gone = hosts_of(report), silent(report)
    labels = {host: f"{host} (down)" if host in gone else host for host in hosts}
    figures = []
    for bench, title in TITLES.items():
        rows = [row for row in report.select(bench) if ends(row.path) and row.metric in LOADS]
        for metric, size in sorted({(row.metric, row.size) for row in rows}):
            chosen = [row for row in rows if (row.metric, row.size) == (metric, size)]
            if bench != "hosts-lost" or any(row.p50 > 0 for row in chosen):
                figures.append(matrix(f"{bench}-{size}-{metric}".rstrip("-"), f"{title}, {units.size_text(size)}{LOADS[metric]}", chosen, labels,
                                      ends))
    return figures


def spread(path, metric, unit, values):
    return Row("hosts", path, metric, 0, unit, statistics.median(values), min(values), max(values), rounds=len(values))


def between(report, unit, difference):
    """A row for each pair and load: `difference` of the values of a round, over the rounds that have it."""
    rounds, hosts, rows = values_of(report), hosts_of(report), []
    for number, one in enumerate(hosts):
        for other in hosts[number + 1:]:
            for metric in LOADS:
                found = [value for values in rounds if (value := difference(values, metric, one, other)) is not None]
                if found:
                    rows.append(spread(f"{one} > {other}", metric, unit, found))
    return rows


def asymmetries(report):
    """How the two ways of each pair differ, as far as round trips and streams can tell."""
    sizes = sorted({row.size for row in report.select("hosts-out")})
    largest = max((row.size for row in report.select("hosts-bandwidth")), default=0)

    def longer(values, metric, one, other):
        try:
            there, back = (values["hosts-out", metric, sizes[-1], *way] - values["hosts-out", metric, sizes[0], *way]
                           for way in ((one, other), (other, one)))
        except KeyError:
            return None
        return there - back

    def faster(values, metric, one, other):
        there, back = (values.get(("hosts-bandwidth", metric, largest, *way), 0) for way in ((one, other), (other, one)))
        return there / back if there > 0 and back > 0 else None

    def way(row):
        return f"{row.path}{LOADS[row.metric]}"

    bars = "One round tells no difference." if report.rounds < 2 else "Bars that reach over {} tell no difference."
    figures = [dots("hosts-ways-rate", "Rate of a stream, over that of the other way", between(report, "x", faster), way, lambda row: "ratio",
                    note="Above 1: the way shown is the faster one. " + bars.format(1))]
    if len(sizes) > 1:
        figures.insert(0, dots(
            "hosts-ways-time", f"How much longer {units.size_text(sizes[-1])} take than {units.size_text(sizes[0])}, less the same of the other way",
            between(report, "ns", longer), way, lambda row: "difference",
            note="Above 0: the way shown is the slower one. " + bars.format(0)))
    return figures


def over_time(report):
    """The rounds over time: for each host the median over the others, with the least and the greatest."""
    times, rounds = report.content.get("times"), values_of(report)
    if not isinstance(times, list) or len(times) != len(rounds) or len(rounds) < 2 or not all(map(is_figure, times)):
        return []
    figures = []
    for bench, choose in (("hosts-rtt", min), ("hosts-bandwidth", max)):
        sizes = {row.size for row in report.select(bench)}
        moments = {}
        for number, (moment, values) in enumerate(zip(times, rounds)):
            for (name, metric, size, one, _), value in values.items():
                if name == bench and size == choose(sizes):
                    at = number * MOMENTS // max(MOMENTS, len(rounds))
                    moments.setdefault((at, one, metric), []).append((moment, value))
        rows = []
        for (_, one, metric), found in moments.items():
            row = spread(f"{one}{LOADS.get(metric, '')}", metric, "ns" if bench == "hosts-rtt" else "GB/s", [value for _, value in found])
            row.at = (found[0][0] - times[0]) / 3600
            rows.append(row)
        figures.append(curves(f"{bench}-time", f"{TITLES[bench]} over time, {units.size_text(choose(sizes, default=0))}: each host to the others",
                              rows, "hours", lambda row: row.at, lambda hours: f"{hours:.2f} h", log_x=False))
    return figures


def figures_of(report):
    return matrices(report) + asymmetries(report) + over_time(report)


def sentences(report):
    for bench, what in (("hosts-rtt", "A round trip"), ("hosts-bandwidth", "A stream")):
        rows = [row for row in report.select(bench) if ends(row.path) and row.metric in LOADS]
        for metric, size in sorted({(row.metric, row.size) for row in rows}):
            least, greatest = (choose((row for row in rows if (row.metric, row.size) == (metric, size)), key=lambda row: row.p50)
                               for choose in (min, max))
            yield (f"{what} of {units.size_text(size)}{LOADS[metric]}: from {units.value_text(least.p50, least.unit)} ({least.path}) "
                   f"to {units.value_text(greatest.p50, greatest.unit)} ({greatest.path}).")
    if report.rounds and not report.content["rounds"][-1]:
        yield "The newest round measured nothing."
    gone = silent(report)
    for host, why in gone.items():
        yield f"{host} was not measured in the newest round: {why}."
    for pair, why in errors(report).items():
        if not set(pair) & set(gone):
            yield f"{' > '.join(pair)} is incomplete in the newest round: {why}."
