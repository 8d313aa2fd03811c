# plan.py - what a report measures: the runs of unet-bench of one round, in the order of the page.
from dataclasses import dataclass


@dataclass
class Step:
    """One run of unet-bench."""
    arguments: list
    seconds: float  # that it takes on two cores; measuring.py corrects it by what earlier steps took
    rounds: int = 100  # it is in so many rounds at most

    @property
    def benches(self):
        return [self.arguments[0]] if self.arguments[0] == "kernels" else [word for word in self.arguments[1:self.first_option]]

    def under(self, conditions):
        """Returns this step on wires of these conditions alone."""
        return Step([*self.arguments, "--condition", conditions], self.seconds, self.rounds)

    @property
    def first_option(self):
        return next((at for at, word in enumerate(self.arguments) if word.startswith("-")), len(self.arguments))


@dataclass
class Plan:
    mode: str
    rounds: int
    steps: list
    left_out: dict  # benchmark -> why this plan does not measure it

    def seconds(self):
        return sum(step.seconds * min(step.rounds, self.rounds) for step in self.steps)


def run(benches, path="", size="", seconds=0.1, repeat=3, takes=1.0, rounds=100):
    options = (["--path", path] if path else []) + (["--size", size] if size else [])
    return Step(["run", *benches.split(), *options, "--seconds", f"{seconds:g}", "--repeat", str(repeat)], takes, rounds)


def machines(kernels, ranks, takes, names="cm-5,cs-2,unet-atm,now,100g"):
    """Kernels on the machines of the U-Net paper, on a network of workstations and on one of today, simulated."""
    return Step(["kernels", "--kernel", kernels, "--path", names, "--ranks", ranks, "--repeat", "1"], takes, 1)


IN_FULL = "it takes minutes: the report without --quick measures it"


def quick():
    """Three minutes: three rounds of the main paths."""
    return Plan("quick", 3, [
        run("rtt", "local,shared,memif,kernel-udp-busy,kernel-tcp-busy,kernel-pipe-busy", "8,48,256,1K,4K,16K", 0.08, takes=5),
        run("bandwidth", "local,shared,memif,kernel-unix,kernel-tcp", "256,1K,4K,16K,64K", 0.08, takes=3),
        run("rate", "local,shared,memif,kernel-udp-busy", "8,48", 0.06, takes=1.5),
        run("endpoints", "local,shared", "8", 0.1, takes=5, rounds=2),
        run("am-rtt", "am-local", "8,48,1K,4K", 0.08, takes=2),
        run("am-store am-get", "am-local", "512,4K,64K", 0.08, takes=1.5),
        run("am-peers", "am-local", repeat=1, takes=1, rounds=1),
        run("am-loss", repeat=1, takes=10, rounds=1).under("loss_0.1%,loss_1%,late_1%"),
        run("am-traffic tcp-traffic", size="8", repeat=1, takes=5, rounds=1),
        run("logp", "am-local,am-memif", seconds=0.2, takes=2),
        run("splitc", "splitc-direct,splitc-messages", seconds=0.1, takes=1.5),
        run("rpc", "rpc-local,rpc-one-core,rpc-memif,rpc-pipe", seconds=0.06, takes=6.5),
        run("rpc-cost", "rpc-local,rpc-memif", seconds=0.1, takes=3),
        run("rpc-scale", "rpc-local,rpc-one-core", "1,4,16", 0.06, takes=2, rounds=2),
        run("ports", "ports-local,ports-memif", "8,1M", 0.03, takes=9, rounds=1),
        run("fibers one-core ipc-techniques pipe", seconds=0.06, takes=4),
        run("tasks", "tasks-sim-*", "8,128", repeat=1, takes=1, rounds=1),
        run("tcp-rtt udp-rtt", "tcp-local,udp-local,kernel-tcp-busy,kernel-udp-busy", "64,1K,16K", 0.06, takes=2),
        run("tcp-stream udp-stream", "tcp-local,udp-local", seconds=0.06, takes=1),
        run("connections", "tcp-local", seconds=0.1, takes=0.5),
        run("fairness", "flood-two,flood-largest", seconds=0.3, takes=1),
        run("restart", repeat=1, takes=4, rounds=1),
        run("wakeup idle", "local-sleep", repeat=1, takes=2, rounds=1),
        Step(["kernels", "--kernel", "mm-128,cg", "--path", "direct,serial", "--ranks", "1,2", "--repeat", "1"], 8, 1),
        machines("mm-128,mm-16,ssort-bulk,rsort-bulk,components,cg", "8", 6),
    ], {name: IN_FULL for name in ("tcp-loss", "sockets", "many", "put")})


def full():
    """Half an hour: three rounds of all paths that differ, and fewer of what takes long by itself."""
    return Plan("full", 3, [
        run("rtt", "", "8,48,256,1K,4K,16K,64K", 0.15, takes=60),
        run("bandwidth", "", "", 0.15, takes=40),
        run("rate", "", "8,48", 0.15, takes=20),
        run("put", "local,memif", seconds=0.15, takes=3),
        run("endpoints", "local,shared", "8", 0.3, takes=8),
        run("am-rtt am-store am-get", "am-local,am-memif", seconds=0.1, takes=25),
        run("am-peers", "am-local", takes=3),
        run("am-traffic tcp-traffic", repeat=1, takes=80, rounds=1),
        run("logp", "", seconds=0.3, takes=10),
        run("splitc", "", seconds=0.2, takes=8),
        run("rpc", "", seconds=0.1, takes=15),
        run("rpc-cost", seconds=0.2, takes=5),
        run("fibers ipc-techniques pipe", seconds=0.15, takes=6),
        run("rpc-scale ports", seconds=0.1, repeat=5, takes=75),  # a slow path has one slice a repetition, and needs three undisturbed
        run("tcp-rtt udp-rtt tcp-stream udp-stream", "*-local,*-memif,*-af_xdp,kernel-*", seconds=0.1, takes=40),
        run("connections", "tcp-local,tcp-memif", seconds=0.2, takes=3),
        run("fairness", seconds=0.3, takes=20),
        run("idle", "", repeat=1, takes=12),
        run("restart", repeat=2, takes=10),
        run("am-loss", repeat=1, takes=25, rounds=2),
        run("tcp-loss", "tcp-impaired,kernel-tcp-cubic", repeat=1, takes=60, rounds=2),
        run("sockets", "programs-local", seconds=1, repeat=1, takes=60, rounds=2),
        run("tasks", repeat=1, takes=20, rounds=1),
        run("wakeup connect emulated engines one-core", seconds=0.2, takes=20, rounds=2),
        run("many", "tcp-local", "10000", repeat=1, takes=5, rounds=1),
        Step(["kernels", "--kernel", "mm-128,ssort-bulk,rsort-bulk,cg", "--path", "direct,messages,serial,limit-copies", "--ranks", "1,2",
              "--repeat", "2"], 60, 1),
        machines("mm-128,mm-16,ssort-bulk,rsort-bulk,components,cg", "8,32", 50),
        machines("components,cg", "128", 30),
        machines("cg", "512,1024", 20, "unet-atm,100g"),
    ], {})
