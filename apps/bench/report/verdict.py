# verdict.py - what the figures say, in sentences made of them.
import pairs
import units

SIZES = (48, 8, 64)


def first(report, bench, paths, metric=None, sizes=SIZES):
    """The first row that exists, by path and then by size."""
    for path in paths:
        for size in sizes:
            row = report.find(bench, path, metric, size)
            if row is not None:
                return row
    return None


def placement(report):
    """How far apart the two cores are, seen as the time of a cache line."""
    row = report.find("rtt", "limit-pingpong", size=8) or report.find("rtt", "limit-pingpong")
    if row is None:
        return ""
    how = "close together" if row.p50 < 150 else "far apart" if row.p50 < 600 else "so far apart that they lie in two packages, or the machine is busy"
    return (f"A cache line goes from one of the two cores to the other and back in {units.spread_text(row)}: these cores are {how}. "
            "Other times of the page are to be read beside this one.")


def times(value, base):
    return units.ratio_text(value / base)


def round_trips(report):
    ours, limit = first(report, "rtt", ["local"]), None
    if ours is None:
        return
    limit = next((ratio for name, ratio in ours.ratios.items() if name.startswith("limit-")), None)
    text = f"A message of {units.size_text(ours.size)} goes to another process and back in {units.value_text(ours.p50, 'ns')}"
    yield text + (f": {units.ratio_text(limit[0])} times the limit." if limit else ".")
    kernels = [row for row in report.select("rtt", size=ours.size) if row.path.startswith("kernel-")]
    if kernels:
        best = min(kernels, key=lambda row: row.p50)
        yield (f"The kernel's fastest path measured, {best.path}, takes {times(best.p50, ours.p50)} times as long "
               f"({units.value_text(best.p50, 'ns')}).")
    if ours.p99 == ours.p99:
        yield f"One round trip in a hundred takes more than {units.value_text(ours.p99, 'ns')} ({times(ours.p99, ours.p50)} times the median)."


def through_wires(report):
    for path, bare in (("shared", ""), ("memif", "raw-memif"), ("af_xdp", "raw-af_xdp")):
        row = first(report, "rtt", [path])
        if row is not None and (not bare or bare in row.ratios):
            over = f", {units.ratio_text(row.ratios[bare][0])} times bare DPDK's" if bare else ""
            what = "through the engine of unetd" if path == "shared" else f"over {path}"
            yield f"A round trip {what} takes {units.value_text(row.p50, 'ns')}{over}."


def streams(report):
    rows = [row for row in report.select("bandwidth") if row.path == "local"]
    if rows:
        best = max(rows, key=lambda row: row.p50)
        kernels = [row for row in report.select("bandwidth", size=best.size) if row.path.startswith("kernel-")]
        beside = max(kernels, key=lambda row: row.p50) if kernels else None
        yield (f"A stream of {units.size_text(best.size)} messages moves {units.value_text(best.p50, 'GB/s')}"
               + (f", {times(best.p50, beside.p50)} times that of {beside.path}." if beside else "."))
    rate = first(report, "rate", ["local"], sizes=(8, 48))
    if rate is not None:
        yield f"Small messages flow at {units.value_text(rate.p50, rate.unit)}."


def layers(report):
    request = first(report, "am-rtt", ["am-local"], "rtt_short", (8, 48, 32))
    if request is not None and "local" in request.ratios:
        yield f"An Active Message and its reply take {units.ratio_text(request.ratios['local'][0])} times a raw round trip."
    call, other = report.find("rpc", "rpc-local", "null"), report.find("rpc", "rpc-grpc", "null")
    if call is not None:
        yield (f"A null call of another process takes {units.value_text(call.p50, 'ns')}"
               + (f"; gRPC takes {times(other.p50, call.p50)} times as long." if other else "."))
    stream = first(report, "tcp-stream", ["tcp-local"], sizes=(65536, 16384))
    if stream is not None and "kernel-tcp-busy" in stream.ratios:
        yield f"A TCP stream on one host is {units.ratio_text(stream.ratios['kernel-tcp-busy'][0])} times as fast as the kernel's on loopback."
    idle = [row for row in report.select("endpoints", "local", "rtt_4096_idle") if row.ratios]
    if idle:
        yield f"With 4,096 idle endpoints added, a round trip takes {units.ratio_text(next(iter(idle[0].ratios.values()))[0])} times as long."


def steadiness(report):
    rows = [row for row in report.select("rtt") + report.select("bandwidth") if row.rounds > 1 and row.low > 0]
    if rows:
        wide = sum(1 for row in rows if row.high / row.low > 1.25)
        yield (f"Of {len(rows)} round trips and bandwidths {wide} differed by more than a quarter between rounds"
               + (": the machine was busy, or changed its speed." if wide > len(rows) / 4 else ": the machine was steady."))


def sentences(report):
    return [text for part in (pairs.sentences, round_trips, through_wires, streams, layers, steadiness) for text in part(report)]
