# published.py - figures that were published for the systems this project follows, and the row of a report that stands beside each.
#
# A title or series with "about" has values that are rounded or read from a curve. Values of doubtful origin are left out.
from dataclasses import dataclass, field

import then_rows as rows

UNET = "von Eicken, Basu, Buch and Vogels: U-Net (SOSP 1995)"
FAST_ETHERNET = "Welsh, Basu and von Eicken: ATM and Fast Ethernet network interfaces (HPCA 1997)"
URPC = "Bershad, Anderson, Lazowska and Levy: User-level interprocess communication (TOCS 1991)"
LRPC = "Bershad, Anderson, Lazowska and Levy: Lightweight remote procedure call (TOCS 1990)"
PIPES = "Notes on pipes and shared memory (1990 and 1991)"
L3 = "Liedtke: Improving IPC by kernel design (SOSP 1993)"
DIPC = "Milojicic and others: Concurrency, a case study in remote tasking and distributed IPC (1996)"


@dataclass
class Then:
    """A figure: values (series, row or x, value), and what stands beside them today (series, row or x, rows.Pick)."""
    key: str
    title: str
    source: str
    unit: str
    values: list
    today: list
    why: str
    curves: list = field(default_factory=list)  # (benchmark, paths): whole curves over size of today
    x_label: str = ""


def us(series, values):
    """Values in microseconds, by row."""
    return [(series, row, value * 1000) for row, value in values]


def mbytes(series, values):
    return [(series, row, value / 1000) for row, value in values]


def cells(size):
    """ATM cells of a message by AAL5: 48 bytes each, with a trailer of 8."""
    return -(-(size + 8) // 48)


SIZES = [8, 16, 32, 40, 48, 96, 256, 512, 1024, 1500, 4096]
AAL5 = 17.5 * 48 / 53  # MB/s of a 140 Mbit/s fiber that cells leave for payload and trailer

CALLS = ["null", "add", "200 B in", "200 B in and out"]
THREADS = ["procedure call", "fork", "fork and join", "yield", "acquire and release", "ping-pong"]
OF_THREADS = ["procedure_call", "fork", "fork_join", "yield", "acquire_release", "pingpong"]
OF_CALLS = ["null", "add", "big_in", "big_in_out"]

ALL = [
    Then("unet-rtt", "U-Net: round trip over size", UNET, "ns",
         us("U-Net, SBA-200 (1995)", [(size, 65 if size <= 40 else 120 + 6 * (cells(size) - 2)) for size in SIZES])
         + us("Fore's firmware, the same card", [(8, 160)])
         + us("U-Net, Fast Ethernet (1997)", [(40, 60)]) + us("U-Net, ATM on PCs (1997)", [(40, 90)]), [],
         "Then a co-processor of 25 MHz on the card moved each cell over the I/O bus, so a second cell cost more than the wire. Today a message "
         "between two processes is one cache line up to 48 B, and its cost is the way of that line between two cores.",
         curves=[("rtt", ["local", "shared", "memif", "af_xdp", "kernel-tcp-busy"])], x_label="message size"),
    Then("unet-bandwidth", "U-Net: bandwidth over size", UNET, "GB/s",
         mbytes("U-Net, SBA-200 (1995)", [(800, 15), (4096, 15)])
         + mbytes("limit of AAL5", [(size, AAL5 * size / (48 * cells(size))) for size in SIZES if size >= 48])
         + mbytes("Fore's firmware, the same card", [(4096, 13)]) + mbytes("U-Net, SBA-100 (1995)", [(1024, 6.8)]), [],
         "Then the fiber was the limit, and U-Net reached it with packets of 800 B. Today memory is: a message is copied in and out, at the speed of "
         "two copies.", curves=[("bandwidth", ["local", "shared", "memif", "af_xdp", "kernel-tcp"])], x_label="message size"),
    Then("unet-cost", "U-Net: where the time of a message goes, one way", UNET + "; " + FAST_ETHERNET, "ns",
         us("U-Net, SBA-100 (1995)", [("send", 7), ("transfer", 21), ("receive", 5), ("one way", 33)])
         + us("U-Net, Fast Ethernet (1997), about", [("send", 4.2), ("receive", 4.1)]),
         [("am-local", "send", rows.Pick("logp", "am-local", "o_send")), ("am-local", "transfer", rows.Pick("logp", "am-local", "L")),
          ("am-local", "receive", rows.Pick("logp", "am-local", "o_recv")),
          ("am-local", "one way", rows.Pick("logp", "am-local", ("o_send", "L", "o_recv"))),
          ("am-memif", "send", rows.Pick("logp", "am-memif", "o_send")), ("am-memif", "transfer", rows.Pick("logp", "am-memif", "L")),
          ("am-memif", "receive", rows.Pick("logp", "am-memif", "o_recv")),
          ("am-memif", "one way", rows.Pick("logp", "am-memif", ("o_send", "L", "o_recv")))],
         "Then each side entered the kernel by a fast trap and computed the checksum in software. Today neither side enters the kernel. What is left "
         "is the line that moves: where memory is shared it moves while its receiver reads it, so the transfer may be nothing."),
    Then("unet-summary-rtt", "U-Net: summary, round trips", UNET, "ns",
         us("U-Net, SBA-200 (1995)", [("raw", 65), ("Active Messages", 71), ("UDP", 138), ("TCP", 157), ("Split-C", 72)]),
         [("local", "raw", rows.Pick("rtt", "local", "rtt", 8)), ("local", "Active Messages", rows.Pick("am-rtt", "am-local", "rtt_short", 8)),
          ("local", "UDP", rows.Pick("udp-rtt", "udp-local", "rtt", 64)), ("local", "TCP", rows.Pick("tcp-rtt", "tcp-local", "rtt", 64)),
          ("local", "Split-C", rows.Pick("splitc", "splitc-messages", "read"))],
         "The layers keep their order. TCP and UDP cost less beside a raw message than they did, because an acknowledgement of one host's memory is a "
         "counter. Split-C is a store there, and a read by messages here."),
    Then("unet-summary-bandwidth", "U-Net: summary, bandwidth of 4 KB packets", UNET, "GB/s",
         mbytes("U-Net, SBA-200 (1995)", [("raw", 15), ("Active Messages", 14.75), ("UDP", 15), ("TCP", 14.4), ("Split-C", 14.75)]),
         [("local", "raw", rows.Pick("bandwidth", "local", "bandwidth", 4096)),
          ("local", "Active Messages", rows.Pick("am-store", "am-local", "bandwidth", 4096)),
          ("local", "UDP", rows.Pick("udp-stream", "udp-local", "rate", 1472, scale=1472e-9)),
          ("local", "TCP", rows.Pick("tcp-stream", "tcp-local", "bandwidth", 16384)),
          ("local", "Split-C", rows.Pick("splitc", "splitc-messages", "bulk_put"))],
         "Then all layers filled the fiber, so the protocol did not matter. Today copies are the limit, and each layer that copies once more shows it. "
         "UDP is of 1,472 B, TCP of 16 KiB and Split-C of 64 KiB."),
    Then("unet-tcp", "U-Net: a TCP stream by the kernel and by U-Net", UNET, "GB/s",
         mbytes("1995, about", [("the kernel's TCP", 9.5), ("U-Net's TCP, window of 8 KB", 14.5), ("U-Net's UDP", 15)]),
         [("today", "the kernel's TCP", rows.Pick("tcp-stream", "kernel-tcp-busy", "bandwidth", 65536)),
          ("today", "U-Net's TCP, window of 8 KB", rows.Pick("tcp-stream", "tcp-local", "bandwidth", 65536)),
          ("today", "U-Net's UDP", rows.Pick("udp-stream", "udp-local", "rate", 1472, scale=1472e-9))],
         "Then the kernel lost to its buffers of two sizes and to timers of 200 and 500 ms. Today it loses to the system calls and wake-ups of each "
         "message; its loopback has no wire to fill."),
    Then("unet-machines", "Machines for Split-C: round trip of a message", UNET, "ns",
         us("1995", [("CM-5", 12), ("Meiko CS-2", 25), ("U-Net ATM cluster", 71)]),
         [("today", "two processes, short request", rows.Pick("am-rtt", "am-local", "rtt_short", 8)),
          ("today", "two processes over memif", rows.Pick("am-rtt", "am-memif", "rtt_short", 8))],
         "The cluster was a network of workstations that came close to a parallel machine. Two cores of one processor today are closer than any of "
         "these. The heights of the paper's bars for seven programs are not known here; the theme Split-C has our speed-ups."),
    Then("unet-machines-bandwidth", "Machines for Split-C: bandwidth", UNET, "GB/s",
         mbytes("1995", [("CM-5", 10), ("Meiko CS-2", 39), ("U-Net ATM cluster", 14)]),
         [("today", "two processes, stores of 64 KiB", rows.Pick("am-store", "am-local", "bandwidth", 65536))],
         "Bulk programs were decided by these numbers, and the CM-5 lost them."),
    Then("urpc-threads", "URPC, Table I: threads", URPC, "ns",
         us("FastThreads, user level (1991)", zip(THREADS, (7, 43, 102, 37, 27, 53)))
         + us("Taos, kernel (1991)", zip(THREADS, (7, 1192, 1574, 57, 27, 271))),
         [(path, row, rows.Pick("fibers", path, metric)) for path in ("fibers", "kernel-threads") for row, metric in zip(THREADS, OF_THREADS)],
         "The gap between user-level and kernel threads is as wide as it was, for the same reason: a switch by the kernel is two crossings and the "
         "scheduler. The processor is a thousand times as fast."),
    Then("urpc-parts", "URPC, Table II: parts of a call", URPC, "ns",
         us("URPC (1991)", [("client: send", 18), ("client: poll", 6), ("client: receive", 10), ("server: poll", 6),
                            ("server: receive, dispatch, send", 47)]),
         [("rpc-local", row, rows.Pick("rpc-cost", "rpc-local", metric)) for row, metric in
          (("client: send", "client_send"), ("client: poll", "client_poll"), ("client: receive", "client_receive"),
           ("server: poll", "server_poll"), ("server: receive, dispatch, send", "server_serve"))],
         "Then nearly half of a call was the dispatch of threads. Today a line that another core has just written costs more than all instructions, so "
         "what touches such lines, sending and receiving, is what counts."),
    Then("urpc-callers", "URPC: latency and throughput over callers (T), and processors of clients (C) and servers (S)", URPC, "ns",
         us("URPC (1991), about", [("T = C = S = 1, latency", 93), ("C = S = 1, time for each call of many", 53),
                                   ("T = C = 1, S = 0, latency", 375)]),
         [("today", "T = C = S = 1, latency", rows.Pick("rpc-scale", "rpc-local", "latency", 1)),
          ("today", "C = S = 1, time for each call of many", rows.Pick("rpc-scale", "rpc-local", "rate", 16, inverse=True)),
          ("today", "T = C = 1, S = 0, latency", rows.Pick("rpc-scale", "rpc-one-core", "latency", 1)),
          ("today, one call alone", "T = C = S = 1, latency", rows.Pick("rpc", "rpc-local", "null")),
          ("today, one call alone", "T = C = 1, S = 0, latency", rows.Pick("rpc", "rpc-one-core", "null"))],
         "Without a processor of the server the kernel must give it one, then and today: that is the dearest call of each system. A run here has two "
         "processors, so larger C and S are not measured."),
    Then("lrpc-calls", "LRPC: four calls", LRPC, "ns",
         us("LRPC (1990)", zip(CALLS, (157, 164, 192, 227))) + us("LRPC with a second processor", zip(CALLS, (125, 130, 173, 219)))
         + us("Taos RPC (1990)", zip(CALLS, (464, 480, 539, 636))),
         [(path, row, rows.Pick("rpc", path, metric)) for path in ("rpc-local", "rpc-one-core", "rpc-pipe")
          for row, metric in zip(CALLS, OF_CALLS)],
         "LRPC made the caller's thread run the procedure in the server, with one copy. Today a server polls on a core of its own, and no call "
         "crosses the kernel; on one core the crossing is back, as rpc-one-core shows."),
    Then("lrpc-parts", "LRPC: parts of a null call", LRPC, "ns",
         us("LRPC (1990)", [("procedure call", 7), ("two traps", 36), ("two context switches", 66), ("stubs", 21), ("transfer by the kernel", 27)]),
         [("rpc-local", row, rows.Pick("rpc-cost", "rpc-local", metric)) for row, metric in
          (("channel", "channel"), ("Active Message over it", "active_message"), ("call over it", "call"), ("stubs", "stub"))],
         "Two thirds of an LRPC were what the hardware asks for a protected call: traps and switches. A call between two cores needs neither."),
    Then("pipes", "A file through two processes", PIPES, "GB/s",
         mbytes("HP 9000/370", [("pipe", 0.377), ("shared memory", 0.433)]) + mbytes("DECsystem 5810", [("pipe", 1.4), ("shared memory", 2.8)])
         + mbytes("Amiga 3000", [("pipe", 0.856), ("shared memory", 3.57), ("one process", 4.17)]),
         [("today", "pipe", rows.Pick("pipe", "file-pipe", "bandwidth")), ("today", "shared memory", rows.Pick("pipe", "file-memory", "bandwidth")),
          ("today", "local channel", rows.Pick("pipe", "file-local", "bandwidth")), ("today", "one process", rows.Pick("pipe", "limit-file", "bandwidth"))],
         "Shared memory won because copying was dear. Today a wake-up of another core costs more than to copy a block, so two semaphores for each block "
         "lose what the copy saves. A receiver that polls needs no wake-up."),
    Then("l3", "L3: a message of 8 bytes, one way", L3, "ns",
         us("1993, i486 of 50 MHz", [("L3", 5.2), ("Mach", 115)]),
         [("today", "local channel, two cores", rows.Pick("rtt", "local", "rtt", 8, scale=0.5)),
          ("today", "Active Messages on one core", rows.Pick("one-core", "am-one-core", "rtt", 8, scale=0.5)),
          ("today", "a pipe, both poll", rows.Pick("rtt", "kernel-pipe-busy", "rtt", 8, scale=0.5))],
         "L3 counted cycles of the kernel: enter, exit, address space. A local channel has none of these, and is the cache line's way. On one core the "
         "kernel's switch is again the whole cost."),
    Then("l3-ladder", "L3: what a message costs more without one technique", L3, "%",
         [("L3 (1993), 8 B", f"technique {number}", value) for number, value in enumerate((49, 23, 21, 18, 13, 10), 1)],
         [("today, 8 B", row, rows.Pick("ipc-techniques", path, metric, 8, more_than_one=True)) for row, path, metric in
          (("a buffer instead of the slot", "ipc-local", "buffer"), ("two sends instead of one", "ipc-local", "several_sends"),
           ("two copies instead of none", "ipc-local", "two_copies"), ("four crossings instead of two", "ipc-one-core", "four_crossings"))],
         "The lesson holds: no one technique makes a message fast, and each that is left out is paid by every message."),
    Then("dipc-calls", "NORMA IPC and DIPC: null RPC", DIPC, "ns",
         us("NORMA IPC, Paragon", [("local", 220), ("remote", 2070)]) + us("DIPC, Paragon", [("local", 318), ("remote", 1272)])
         + us("DIPC, SCSI cluster", [("local", 115), ("remote", 1129)]),
         [("today", "local", rows.Pick("rpc", "rpc-local", "null")), ("today", "remote", rows.Pick("rpc", "rpc-memif", "null"))],
         "In both a remote call went through the kernels and their message ports. Here it is a frame that the two processes' own interfaces exchange; "
         "the wire is a memif of one host, so its length is not in the figure."),
    Then("dipc-throughput", "DIPC: throughput of long messages", DIPC, "GB/s",
         mbytes("1996", [("DIPC, Paragon", 108), ("RDMA peak, Paragon", 147), ("DIPC, SCSI cluster", 19.2)]),
         [("today", row, rows.Pick("ports", "ports-memif", metric, 1 << 20)) for row, metric in
          (("windowed", "windowed"), ("one message under way", "one_message"), ("a page at a time", "stop_and_wait"))],
         "NORMA IPC sent one page and waited, DIPC kept a window full. The same three kinds of flow are measured here, over one kind of wire."),
    Then("dipc-tasks", "Remote tasks: how many times as fast as one host after another", DIPC, "x",
         [("1996", "NORMA, many at a time", 2.5), ("1996", "DIPC, a tree", 8), ("1996", "DIPC, a tree, 12 areas", 14)],
         [("today, simulated, 128 hosts", row, rows.Pick("tasks", path, "create", 128, per_ratio=True)) for row, path in
          (("many at a time", "tasks-sim-flat-threads"), ("a tree", "tasks-sim-tree"))],
         "A tree of launches wins by the number of its levels. The tasks of today are processes of agents that run already."),
]
