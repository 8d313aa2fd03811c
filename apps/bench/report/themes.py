# themes.py - the themes of a report: which benchmarks each shows, and by which figures. A theme is a title, a sentence and a function of the
# report that returns its figures.
import re
from dataclasses import dataclass

from figures import curves, dots, family_of, shares, timeline
from results import BEFORE_MS, SHARES
import pairs
import units


@dataclass
class Theme:
    key: str
    title: str
    about: str
    benches: list
    figures_of: object


def kind_of(row):
    return {"ours": "U-Net", "kernel": "the kernel", "limit": "limit", "raw": "bare driver"}[family_of(row.path)]


def round_trips(report):
    return [curves("rtt", "Round trip of one message", report.select("rtt")),
            dots("wakeup", "Round trip to a receiver that has to be woken", report.select("wakeup"), lambda row: row.path, kind_of),
            dots("one-core", "Round trip between two processes on one core", report.select("one-core"), lambda row: row.path, kind_of)]


def present(figures):
    return [figure for figure in figures if figure is not None]


def percentiles(report):
    rows = [row for row in report.select("rtt") if any(value == value for value in row.distribution)]
    sizes = sorted({row.size for row in rows})
    chosen = [size for size in (48, 4096) if size in sizes] or sizes[:1]
    figures = [shares(f"rtt-distribution-{size}", f"Distribution of single round trips, {units.size_text(size)}",
                      [row for row in rows if row.size == size], SHARES) for size in chosen]
    return figures + [curves("rtt-p99", "99th percentile of round trips", [tail_of(row) for row in rows if row.p99 == row.p99])]


def tail_of(row):
    """The row with its 99th percentile in place of the median; the rounds' spread is that of medians, and not shown."""
    tail = type(row)(**vars(row))
    tail.p50 = tail.low = tail.high = row.p99
    tail.rounds = 1
    return tail


def rates(report):
    return [curves("bandwidth", "Bandwidth of a one-way stream", report.select("bandwidth")),
            dots("rate", "Messages per second, one way", report.select("rate"), lambda row: units.size_text(row.size), lambda row: row.path),
            dots("put", "Bandwidth of puts into the other's memory", report.select("put", metric="bandwidth"),
                 lambda row: units.size_text(row.size), lambda row: row.path)]


def idle_count(row):
    found = re.fullmatch(r"rtt(?:_(\d+)_idle)?", row.metric)
    return int(found.group(1) or 0) if found else None


def endpoints(report):
    rows = [row for row in report.select("endpoints") if idle_count(row) is not None]
    return [dots("endpoints", "Round trip as idle endpoints are added", rows, lambda row: f"{idle_count(row):,} idle, {units.size_text(row.size)}",
                 lambda row: row.path),
            dots("am-peers", "Memory of an idle Active Message peer", report.select("am-peers"), lambda row: row.metric.replace("_", " "),
                 lambda row: row.path),
            dots("engines", "Messages per second of two engine threads and of one", report.select("engines"),
                 lambda row: units.size_text(row.size), lambda row: row.path),
            dots("connect", "Time to open an end and to connect it", report.select("connect"), lambda row: row.metric, lambda row: row.path),
            dots("emulated", "Round trip of emulated endpoints", report.select("emulated", metric="rtt"), lambda row: units.size_text(row.size),
                 lambda row: row.path)]


def condition(row):
    return row.metric.removeprefix("goodput_").replace("_", ", ")


def losses(report):
    return [dots(bench, title, report.select(bench, metric=lambda name: name.startswith("goodput")), condition, lambda row: row.path)
            for bench, title in (("am-loss", "Goodput of Active Messages on a wire that loses frames, beside TCP's"),
                                 ("tcp-loss", "Goodput of TCP on a wire that loses or delays frames"),
                                 ("am-incast", "Goodput of many senders to one receiver, simulated"))]


def category(row):
    kind = row.metric.removeprefix("rtt").strip("_")
    return f"{row.path}, {kind}" if kind else row.path


def traffic(report):
    titles = {"goodput": "What a receiver handles", "p99": "99th percentile of requests, from when they are due", "fairness": "Jain's index of flows",
              "simulator_events": "Events of the simulator per second", "simulator_memory": "Memory of the simulator per node"}
    notes = {"p99": "A request that still waits at the end counts with its age. So where goodput is below the load, p99 would grow with the time simulated."}
    rows = report.select("am-traffic") + report.select("tcp-traffic")
    return [dots(f"traffic-{kind}", title, [row for row in rows if row.metric.startswith(kind)],
                 lambda row: f"{row.metric.partition('_')[2].replace('_', ' ')}, {row.size} nodes", lambda row: row.path, note=notes.get(kind, ""))
            for kind, title in titles.items()]


def active_messages(report):
    return [curves("am-rtt", "Round trip of a request and its reply", report.select("am-rtt"), label_of=category),
            curves("am-store", "Bandwidth of stores", report.select("am-store")),
            curves("am-get", "Bandwidth of gets", report.select("am-get")),
            dots("am-rate", "Short requests per second", report.select("am-rate"), lambda row: units.size_text(row.size), lambda row: row.path)]


def logp(report):
    names = {"L": "latency L", "o_send": "send overhead", "o_recv": "receive overhead", "g": "gap g", "G": "gap for each KiB G"}
    return [dots(f"logp-{index}", title, [row for row in report.select("logp") if (row.unit == "ns") == (index == 0)],
                 lambda row: names.get(row.metric, row.metric), lambda row: row.path)
            for index, title in enumerate(("Parameters of LogP", "Time for each KiB of long requests"))]


def split_c(report):
    accesses = report.select("splitc")
    by_unit = {}
    for row in accesses:
        by_unit.setdefault(row.unit, []).append(row)
    titles = {"ns": "Reads and barriers", "words/s": "Words per second", "GB/s": "Bulk transfers"}
    figures = [dots(f"splitc-{titles.get(unit, unit).split()[0].lower()}", titles.get(unit, unit), rows, lambda row: row.metric.replace("_", " "),
                    lambda row: row.path) for unit, rows in by_unit.items()]
    kernels = [row for row in report.select("kernels") if row.path not in ("serial",) and row.ratios]
    return figures + [dots("kernels-speed-up", "Speed-up over the serial program, or over one rank", kernels,
                           lambda row: f"{row.metric}, P = {row.size}", lambda row: row.path, lambda row: next(iter(row.ratios))),
                      dots("kernels-time", "Time of parallel programs", report.select("kernels"),
                           lambda row: f"{row.metric}, P = {row.size}", lambda row: row.path)]


def machines(report):
    rows = report.select("machines")
    times = {(row.metric, row.size): row.p50 for row in rows if row.path == "cm-5"}
    beside = [over(row, times[row.metric, row.size]) for row in rows if (row.metric, row.size) in times]
    return [dots("machines", "Time of parallel programs on other machines, over that on a CM-5", beside,
                 lambda row: f"{row.metric}, P = {row.size:,}", lambda row: row.path,
                 note="Simulated: networks by published parameters, processors by an estimate of their speed."),
            curves("machines-ranks", "Speed-up over one rank of the same machine", [speed_up_of(row) for row in rows if row.ratios], "ranks",
                   where=lambda ranks: f"{ranks:,}", label_of=lambda row: f"{row.metric}, {row.path}")]


def over(row, time):
    """The row with its time as a share of another."""
    share = type(row)(**vars(row))
    share.p50, share.low, share.high, share.unit = row.p50 / time, row.low / time, row.high / time, "x"
    return share


def speed_up_of(row):
    faster = type(row)(**vars(row))
    faster.p50, faster.low, faster.high = row.ratios["one rank"]
    faster.unit = "x"
    return faster


def calls(report):
    scale = report.select("rpc-scale")
    return [dots("rpc", "Procedure calls", report.select("rpc"), lambda row: row.metric.replace("_", " "), lambda row: row.path),
            dots("rpc-cost", "Parts of a null call", report.select("rpc-cost"), lambda row: row.metric.replace("_", " "), lambda row: row.path),
            curves("rpc-scale-latency", "Latency of calls over the number of callers", [row for row in scale if row.unit == "ns"], "callers",
                   where=lambda count: f"{count:,}"),
            curves("rpc-scale-rate", "Calls per second over the number of callers", [row for row in scale if row.unit != "ns"], "callers",
                   where=lambda count: f"{count:,}"),
            dots("fibers", "Operations of threads", report.select("fibers"), lambda row: row.metric.replace("_", " "), lambda row: row.path),
            dots("ipc-techniques", "Round trips without one technique, over those with it", report.select("ipc-techniques"),
                 lambda row: f"{row.metric.replace('_', ' ')}, {units.size_text(row.size)}", lambda row: row.path,
                 lambda row: next(iter(row.ratios), None)),
            dots("ports", "Message ports: request and answer", [row for row in report.select("ports") if row.unit == "ns"],
                 lambda row: f"{row.metric.replace('_', ' ')}, {units.size_text(row.size)}", lambda row: row.path),
            dots("ports-stream", "Message ports: long messages", [row for row in report.select("ports") if row.unit != "ns"],
                 lambda row: f"{row.metric.replace('_', ' ')}, {units.size_text(row.size)}", lambda row: row.path),
            dots("tasks", "Time until tasks run on all hosts", report.select("tasks"), lambda row: f"{row.metric.replace('_', ' ')}, {row.size:,} hosts",
                 lambda row: row.path),
            dots("pipe", "A file through two processes", report.select("pipe"), lambda row: row.path, kind_of)]


def sockets(report):
    titles = (("tcp-rtt", "Round trip by TCP sockets"), ("udp-rtt", "Round trip by UDP sockets"), ("tcp-stream", "Stream by TCP sockets"),
              ("udp-stream", "Datagrams per second by UDP sockets"))
    return [curves(bench, title, report.select(bench)) for bench, title in titles] + [
        dots("connections", "Connections per second", report.select("connections"), lambda row: f"{row.size} under way", lambda row: row.path),
        dots("many", "Memory of an idle connection, one end", report.select("many", metric="memory"), lambda row: f"{row.size:,} idle",
             lambda row: row.path)]


def programs(report):
    rows = [row for row in report.select("sockets") if row.ratios]
    return [dots("programs", "Unmodified programs on our sockets, over the same on the kernel's",
                 [row for row in rows if not row.metric.endswith("_cpu") and "_cpu_" not in row.metric],
                 lambda row: f"{row.metric} ({row.unit})", lambda row: row.path, lambda row: next(iter(row.ratios)),
                 note="For rates large is good, for times (ns) small is good.")]


def processor_time(report):
    rows = [row for row in report.rows if row.measured and row.cpu == row.cpu]
    for row in rows:
        row.cpu_row = cpu_of(row)
    by_bench = {}
    for row in rows:
        by_bench.setdefault(row.bench, []).append(row.cpu_row)
    figures = [dots(f"cpu-{bench}", f"Processor time for each {'byte' if of[0].unit == 's/GB' else 'message'}: {bench}", of,
                    lambda row: units.size_text(row.size) if row.size else row.metric, lambda row: row.path) for bench, of in by_bench.items()]
    programs_cpu = [row for row in report.select("sockets") if row.metric.endswith("_cpu") and row.ratios]
    return figures + [dots("cpu-programs", "Processor time of unmodified programs, over that on the kernel's sockets", programs_cpu,
                           lambda row: row.metric.removesuffix("_cpu"), lambda row: row.path, lambda row: next(iter(row.ratios))),
                      dots("idle", "Processor time while nothing happens, of one core", report.select("idle"), lambda row: row.path,
                           kind_of)]


def cpu_of(row):
    """The row with its processor time in place of the median."""
    cpu = type(row)(**{name: value for name, value in vars(row).items() if name != "cpu_row"})
    cpu.p50 = cpu.low = cpu.high = row.cpu
    cpu.unit = "s/GB" if row.unit == "GB/s" else "ns"
    cpu.rounds, cpu.ratios = 1, {}
    return cpu


def fairness(report):
    rows = report.select("fairness")
    return [dots("fairness", "Round trips of a pair beside a hostile client", [row for row in rows if row.unit == "ns"],
                 lambda row: row.path, lambda row: row.metric.replace("_", " ")),
            dots("fairness-ratio", "The same, over the pair alone or over a client that does not attack", [row for row in rows if row.ratios],
                 lambda row: row.path, lambda row: row.metric.replace("_", " "), lambda row: next(iter(row.ratios)))]


def restart(report):
    return [dots("restart", "Longest time without a message while unetd is replaced",
                 [row for row in report.select("restart") if row.unit == "ns"], lambda row: row.path, lambda row: row.metric.replace("_", " ")),
            timeline("restart-timeline", "Messages while unetd is replaced", [row for row in report.select("restart") if row.timeline], BEFORE_MS)]


HOSTS = Theme("hosts", "Hosts", pairs.ABOUT, ["hosts-rtt"], pairs.figures_of)

THEMES = [
    Theme("rtt", "Round trip over size", "One message goes to another process and back. The limit is a cache line, or a copy, handed back and forth.",
          ["rtt"], round_trips),
    Theme("percentiles", "Percentiles", "Single round trips: each share of them took at most the time shown.", ["rtt"], percentiles),
    Theme("bandwidth", "Bandwidth and rate", "Messages in one direction, as fast as the path takes them.", ["bandwidth", "rate"], rates),
    Theme("endpoints", "Endpoints and peers", "What is added costs memory, but should cost an active pair no time.",
          ["endpoints", "am-peers"], endpoints),
    Theme("loss", "Loss", "A program in the kernel drops or delays frames of one cable, for every path alike.", ["am-loss", "tcp-loss"], losses),
    Theme("traffic", "Traffic", "Patterns of Active Messages and of TCP on simulated networks of 100 Gbit/s: one switch, and fat trees with ECMP and shared "
          "buffers. TCP is that of our sockets, with ECN marks above 128 KiB in a port's queue (CUBIC, DCTCP), or with drops alone (CUBIC); Active Messages follow delay. "
          "The simulation leaves out the time of hosts, queues of network cards, receive buffers that fill, and Active Messages' headers and replies. "
          "Packets are lost only at full queues.", ["am-traffic", "tcp-traffic"], traffic),
    Theme("am", "Active Messages", "A request names a handler of the receiver, which may reply.", ["am-rtt", "am-store", "am-get"], active_messages),
    Theme("logp", "LogP", "Latency, overheads and gaps of short messages, after Culler, Liu, Martin and Yoshikawa (1996).", ["logp"], logp),
    Theme("splitc", "Split-C", "Access to the memory of another rank, and whole programs.", ["splitc", "kernels"], split_c),
    Theme("machines", "Other machines", "The same programs with 8 to 1,024 ranks in virtual time, over real Active Messages on simulated networks.",
          ["machines"], machines),
    Theme("calls", "Calls", "A procedure of another process, and the parts of a fast call.",
          ["rpc", "rpc-cost", "fibers", "ipc-techniques", "pipe", "rpc-scale", "ports", "tasks"], calls),
    Theme("sockets", "TCP and UDP", "Sockets of this project beside the kernel's.", ["tcp-rtt", "tcp-stream", "udp-rtt", "udp-stream", "connections"],
          sockets),
    Theme("programs", "Unmodified programs", "Debian's programs on our sockets and on the kernel's, by unet-sockets.", ["sockets"], programs),
    Theme("cpu", "Processor time", "The time of both sides and of unetd, beside the rates above. A side that polls uses all of its core.",
          ["tcp-stream", "udp-stream", "idle"], processor_time),
    Theme("fairness", "Fairness", "A well-behaved pair beside a client that tries to harm it.", ["fairness"], fairness),
    Theme("restart", "Restart", "unetd is killed, upgraded, or stopped and started while messages flow.", ["restart"], restart),
]
