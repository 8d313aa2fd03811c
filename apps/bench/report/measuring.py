# measuring.py - runs a plan by unet-bench, round by round, and writes the JSON after each step; progress goes to stderr.
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

from failure import Failure
import interruption
import results

PATIENCE = 20  # a step that takes so many times its estimate, and two minutes more, has hung
LAST_WORDS = 60  # seconds for a run of unet-bench to end after a signal


class Interrupted(Exception):
    """SIGINT or SIGTERM: the report is drawn from what was measured."""


def on_signal(number, _):
    raise Interrupted(signal.Signals(number).name)


def version_of(bench):
    """The release of this unet-bench."""
    try:
        return subprocess.run([bench, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise Failure(f"cannot run {bench}: {error}") from None


def minutes(seconds):
    seconds = max(0, round(seconds))
    return f"{seconds // 60}:{seconds % 60:02}"


class Progress:
    """One line on a terminal, a line for each step elsewhere."""

    def __init__(self, plan):
        self.plan = plan
        self.start = time.monotonic()
        self.took = {}  # seconds of a step, by its number, in the last round
        self.estimated = self.spent = 0.0  # of the steps that are done
        self.terminal = sys.stderr.isatty()

    def left(self, round_number, number):
        """The time left, by what steps took before, and by how far the others' estimates were wrong so far."""
        wrong = self.spent / self.estimated if self.estimated else 1.0
        steps = [(r, n) for r in range(self.plan.rounds) for n, step in enumerate(self.plan.steps) if r < step.rounds]
        return sum(self.took.get(n, self.plan.steps[n].seconds * wrong) for r, n in steps if (r, n) >= (round_number, number))

    def begins(self, round_number, number):
        step, rounds = self.plan.steps[number], self.plan.rounds
        text = (f"unet-bench: round {round_number + 1} of {rounds}, {number + 1} of {len(self.plan.steps)}: {' '.join(step.benches)}; "
                f"about {minutes(self.left(round_number, number))} left")
        print(f"\r\033[K{text[:118]}" if self.terminal else text, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def ended(self, number, seconds):
        self.took[number] = seconds
        self.estimated += self.plan.steps[number].seconds
        self.spent += seconds

    def close(self):
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr)
        print(f"unet-bench: measured for {minutes(time.monotonic() - self.start)}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def interruptible():
    """Ending signals raise Interrupted in this block."""
    before = [(number, signal.signal(number, on_signal)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def end(process, patience=LAST_WORDS):
    """Asks a run to end, waits for it, and returns its output and errors."""
    with interruption.undisturbed():
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()


def records_of(bench, step):
    """The records of a step, and what it said on stderr; raises Failure with the reason if it has none."""
    with subprocess.Popen([bench, *step.arguments, "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, said = process.communicate(timeout=120 + PATIENCE * step.seconds)
        except subprocess.TimeoutExpired:
            end(process)
            raise Failure("it took too long, and was ended") from None
        except Interrupted:
            end(process)
            raise
    lines = [line.removeprefix("unet-bench: ") for line in said.splitlines()]
    if process.returncode == 128 + signal.SIGINT:  # the terminal told it, too
        raise Interrupted("SIGINT")
    if process.returncode != 0:
        raise Failure(lines[-1] if lines else f"unet-bench ended with status {process.returncode}")
    records = json.loads(out)
    for record in records:
        record["command"] = record["command"].removesuffix(" --json -")
    return records, lines


def note(content, item):
    if item not in content["absent"]:
        content["absent"].append(item)


def measure(bench, plan, content, path):
    """Fills `content` and writes it to `path`; ends early, with a reason in it, after a signal."""
    for bench_name, why in plan.left_out.items():
        note(content, {"bench": bench_name, "why": why})
    progress, number = Progress(plan), 0
    try:
        with interruptible():
            for round_number in range(plan.rounds):
                content["rounds"].append([])
                for number, step in enumerate(plan.steps):
                    if round_number < step.rounds:
                        progress.begins(round_number, number)
                        run_step(bench, step, content, progress, number)
                        results.write(content, path)
    except Interrupted as interrupt:
        content["stopped"] = f"{interrupt} in round {len(content['rounds'])} of {plan.rounds}"
        for step in plan.steps[number:]:
            for name in step.benches:
                note(content, {"bench": name, "why": f"{interrupt} ended the run before it was measured"})
    finally:
        progress.close()
    content["rounds"] = [records for records in content["rounds"] if records]
    if not content["rounds"]:
        raise Failure("nothing was measured: " + (content["stopped"] or content["absent"][-1]["why"]))
    results.write(content, path)


def run_step(bench, step, content, progress, number):
    began = time.monotonic()
    try:
        records, said = records_of(bench, step)
    except Failure as failure:
        for name in step.benches:
            note(content, {"bench": name, "why": str(failure)})
    else:
        content["rounds"][-1] += records
        content["machine"].setdefault("commit", records[0]["commit"] if records else "unknown")
        for line in said:
            what, left_out, why = line.partition(" left out: ")
            if left_out:
                note(content, {"what": what, "why": why})
    progress.ended(number, time.monotonic() - began)


def find_bench():
    """The unet-bench that started this program, or the one beside it."""
    named = os.environ.get("UNET_BENCH")
    return named or os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])), "unet-bench")
