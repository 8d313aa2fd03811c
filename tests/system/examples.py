#!/usr/bin/env python3
# examples.py - the example programs as a newcomer runs them: over a unetd, unet-run, an embedded NI and a wire; and with wrong input.
#
# Usage: examples.py EXAMPLES_DIRECTORY UNETD UNET_RUN LIBUNET_EMBEDDED
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from daemon import Failure, require

EXAMPLES, UNETD, UNET_RUN, EMBEDDED = (os.path.abspath(p) for p in sys.argv[1:5])
WAIT = 120  # seconds; an upper bound for what takes milliseconds on an idle machine
HELLO = "Bob received: Hello, Bob.\nAlice received: Hello, Alice.\n"
AM_HELLO = "Bob handles a request from hello/alice: 6 * 7\nAlice handles a reply: 42\ncame back: bad_handler\n"
LANGUAGES = ("", "_c")


def example(name):
    return os.path.join(EXAMPLES, name)


def environment(ni):
    env = {**os.environ, "UNET_EMBEDDED_LIBRARY": EMBEDDED}
    env.pop("UNET_NI", None)
    env.pop("UNET_RANK", None)
    if ni is not None:
        env["UNET_NI"] = ni
    return env


def run(*command, ni=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, env=environment(ni))
    return done.returncode, done.stdout, done.stderr


def run_well(*command, ni=None):
    code, out, err = run(*command, ni=ni)
    require(code == 0, f"{' '.join(command)} ended with {code}: {out}{err}")
    return out


def refused(code, words, *command, ni=None):
    """The command fails with this status and one line on stderr that contains all these words."""
    status, out, err = run(*command, ni=ni)
    require(status == code, f"{' '.join(command)} ended with {status}, not {code}: {out}{err}")
    for word in words:
        require(word in err, f"{' '.join(command)}: no '{word}' in: {err}")
    require(1 <= len(err.splitlines()) <= 2, f"{' '.join(command)}: one clear line is wanted: {err}")


class Process:
    """A program that runs until a signal; killed at the end of the with block if it still runs."""

    def __init__(self, *command, ni=None, ready=None, pass_fds=()):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=environment(ni), pass_fds=pass_fds)
        if ready is not None:
            line = self.process.stdout.readline()
            require(ready in line, f"{command[0]} said '{line}' instead of '{ready}'")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self, number):
        """Sends a signal; returns exit status, stdout and stderr."""
        self.process.send_signal(number)
        return self.finish()

    def finish(self):
        out, err = self.process.communicate(timeout=WAIT)
        return self.process.returncode, out, err


@contextlib.contextmanager
def unetd(*options):
    """Runs a unetd on a socket of its own; yields its UNET_NI and the process."""
    directory = tempfile.mkdtemp(prefix="unet-examples-", dir="/tmp")
    try:
        ready, write = os.pipe()
        command = [UNETD, "--socket", f"{directory}/socket", "--ready-fd", str(write), "--log", "off", *options]
        with Process(*command, pass_fds=(write,)) as process:
            os.close(write)
            got = os.read(ready, 1)
            os.close(ready)
            require(got != b"", f"{' '.join(command)} did not start")
            yield f"unix:{directory}/socket", process
    finally:
        shutil.rmtree(directory)


def server(ni, language="", name="echo", options=()):
    return Process(example("echo_server" + language), *options, name, ni=ni, ready=f"echo server '{name}' is ready")


def check_echoes(out, count, size, kind):
    require(f"{count} echoes of {size} bytes over {kind}: all bytes right; 0 wrong, 0 lost" in out, out)
    require(re.search(r"^round trip: p50 [0-9.]+ us, p99 [0-9.]+ us, least [0-9.]+ us$", out, re.M), out)


LOCAL, NI = "a local channel", "the network interface"

# ---- the tests


def says(name, wanted):
    """The example in all languages, over a unetd, under unet-run, and with an embedded NI."""
    with unetd() as (ni, _):
        for language in LANGUAGES:
            require(run_well(example(name + language), ni=ni) == wanted, f"{name} over unetd says something else")
    for language in LANGUAGES:
        require(run_well(UNET_RUN, "--", example(name + language)) == wanted, f"{name} under unet-run says something else")
        require(run_well(example(name + language), ni="embedded:") == wanted, f"{name} with an embedded NI says something else")


def test_hello():
    says("hello", HELLO)


def test_pingpong():
    for _ in range(5):
        require(run_well(UNET_RUN, "-n", "2", "--", example("pingpong")) == "ping came back\n", "pingpong says something else")


def test_active_messages():
    says("am_hello", AM_HELLO)


def test_split_c():
    with unetd() as (ni, _):
        for language in LANGUAGES:
            require(run_well(example("splitc_hello" + language), ni=ni) == "1 ranks: the squares of 0 to 0 add up to 0\n", "splitc_hello alone")
    for language in LANGUAGES:
        out = run_well(UNET_RUN, "-n", "4", "--", example("splitc_hello" + language))
        require(out == "4 ranks: the squares of 0 to 3 add up to 14\n", f"splitc_hello{language} of four ranks says: {out}")


def test_echo_all_languages_paths_and_sizes():
    with unetd() as (ni, _):
        for of_server in LANGUAGES:
            with server(ni, of_server) as echo:
                clients = 0
                for of_client in LANGUAGES:
                    client = example("echo_client" + of_client)
                    for path, kind in (("auto", LOCAL), ("local", LOCAL), ("ni", NI)):
                        for size in (0, 1, 48, 49, 1500, 65536):
                            out = run_well(client, "-n", "50", "--size", str(size), "-p", path, "echo", ni=ni)
                            check_echoes(out, 50, size, kind)
                            clients += 1
                    check_echoes(run_well(client, "echo", ni=ni), 10000, 48, LOCAL)
                    clients += 1
                code, out, err = echo.end(signal.SIGINT)
                require(code == 0, f"the server ended with {code}: {err}")
                messages = (clients - 2) * 50 + 2 * 10000
                require(re.search(rf"^{messages} messages, \d+ bytes, {clients} clients, 0 echoes dropped$", out, re.M), out)


def test_echo_with_endpoints_without_queues():
    with unetd() as (ni, _):
        for of_server, of_client in (("--emulated", None), (None, "--emulated"), ("-e", "-e")):
            with server(ni, options=[of_server] if of_server else []) as echo:
                for path, kind in (("auto", NI), ("ni", NI), ("local", LOCAL)):
                    for size in (0, 48, 1500, 65536):
                        out = run_well(example("echo_client"), "-n", "50", "-s", str(size), "-p", path, *([of_client] if of_client else []),
                                       "echo", ni=ni)
                        check_echoes(out, 50, size, kind)
                code, out, err = echo.end(signal.SIGINT)
                require(code == 0 and "12 clients, 0 echoes dropped" in out, f"the server ended with {code}: {out}{err}")


def test_echo_over_a_wire():
    directory = tempfile.mkdtemp(prefix="unet-examples-", dir="/tmp")
    try:
        port = f"dpdk:net_memif0,socket={directory}/memif"
        with unetd("--host", "alpha", "--port", port + ",role=server") as (alpha, _), \
                unetd("--host", "beta", "--port", port + ",role=client") as (beta, _):
            with server(alpha, name="far/echo"):
                for language in LANGUAGES:
                    for size in (0, 48, 1500, 65536):
                        out = run_well(example("echo_client" + language), "-n", "200", "-s", str(size), "-w", str(WAIT // 2),
                                       "far/echo@alpha", ni=beta)
                        check_echoes(out, 200, size, NI)
                refused(1, ["echo_client", "nobody"], example("echo_client"), "nobody@alpha", ni=beta)
    finally:
        shutil.rmtree(directory)


RPC_PING = r"Hello, Alice\.\n40 \+ 2 = 42, 1 \+ 1 = 2\na call takes [0-9.]+ us\n"


def test_calls():
    with unetd() as (ni, _):
        for of_server in LANGUAGES:
            serve = Process(example("rpc_ping" + of_server), "serve", "far/ping", ni=ni, ready="server 'far/ping' is ready")
            with serve:
                for language in LANGUAGES:
                    out = run_well(example("rpc_ping" + language), "call", "far/ping", ni=ni)
                    require(re.fullmatch(RPC_PING, out), f"rpc_ping{language} says: {out}")
                code, out, err = serve.end(signal.SIGINT)
                require(code == 0 and re.fullmatch(r"200\d\d (calls|additions)\n", out), f"the server ended with {code}: {out}{err}")
        for language in LANGUAGES:
            program = example("rpc_ping" + language)
            refused(1, ["far/ping"], program, "call", "far/ping", ni=ni)
            refused(2, ["usage"], program)
            refused(2, ["usage"], program, "call", "one", "two")


def test_key_value_store():
    store = example("rpc_kv")
    with unetd() as (ni, _), Process(store, "--at", "far/kv", "serve", ni=ni, ready="store 'far/kv' is ready") as server_of_keys:
        at = [store, "--at", "far/kv"]
        with contextlib.ExitStack() as stack:
            waiting = [stack.enter_context(Process(*at, "wait", "door", ni=ni)) for _ in range(3)]
            in_vain = stack.enter_context(Process(*at, "wait", "nothing", ni=ni))
            time.sleep(0.3)
            require(run(*at, "get", "door", ni=ni) == (1, "", ""), "a key without a value has one")
            require(run_well(*at, "put", "door", "open", ni=ni) == "", "put says something")
            require(run_well(*at, "get", "door", ni=ni) == "open\n", "get says something else")
            for process in waiting:
                require(process.finish() == (0, "open\n", ""), "a call that waited says something else")
            code, out, err = server_of_keys.end(signal.SIGINT)
            require(code == 0 and out == "7 calls\n", f"the store ended with {code}: {out}{err}")
            require(in_vain.finish() == (1, "", "rpc_kv: failed\n"), "the call that still waits does not fail")
        require(run(store, "put", "door")[0] == 2, "put without a value is accepted")


def test_calls_with_bytes_of_flatbuffers():
    if not os.path.exists(example("flatbuffers/rpc_order")):
        return  # the build had no FlatBuffers
    with unetd() as (ni, _), Process(example("flatbuffers/rpc_order"), "serve", ni=ni, ready="the shop is open"):
        out = run_well(example("flatbuffers/rpc_order"), ni=ni)
        require(out == "Thank you, Alice. 859 cents\nfailed 1\n", f"rpc_order says: {out}")


def test_put():
    out = run_well(UNET_RUN, "-n", "2", "--", example("put"))
    text = "Written by rank 1 into the memory of rank 0, where nobody copied it."
    require(f"  {text}\n" in out and f"rank 1: {len(text)} bytes put\n" in out, out)
    refused(2, ["unet-run -n 2"], example("put"))


def test_client_may_come_first():
    with unetd() as (ni, _), Process(example("echo_client"), "--wait", str(WAIT // 2), "-n", "10", "late", ni=ni) as client:
        time.sleep(0.3)
        with server(ni, name="late"):
            code, out, err = client.finish()
            require(code == 0, f"the client ended with {code}: {err}")
            check_echoes(out, 10, 48, LOCAL)


def test_control_c():
    with unetd() as (ni, _):
        for language in LANGUAGES:
            for after in (0.2, 2, 10, 60):  # seconds: on a very busy machine the first are too short for one echo
                with server(ni, language) as echo:
                    with Process(example("echo_client" + language), "-n", "10000000", "-s", "20000", "echo", ni=ni) as client:
                        echo.process.stdout.readline()  # it has accepted the client
                        time.sleep(after)
                        code, out, err = client.end(signal.SIGINT)
                        require("0 wrong, 0 lost" in out and err == "", f"the client ended with {code}: {out}{err}")
                        none = out.startswith("0 echoes")
                        require(none or (code == 0 and "round trip: p50" in out), f"the client ended with {code}: {out}")
                    server_code, server_out, err = echo.end(signal.SIGTERM)
                    # The client may have exited before its last echo.
                    require(server_code == 0 and re.search(" 1 clients, [01] echoes dropped", server_out),
                            f"the server ended with {server_code}: {server_out}{err}")
                if not none:
                    break
            require(not none, "not one echo")


def test_server_that_dies():
    with unetd() as (ni, _):
        for language in LANGUAGES:
            for path in ("local", "ni"):
                with server(ni) as echo, \
                        Process(example("echo_client" + language), "-n", "10000000", "-p", path, "echo", ni=ni) as client:
                    echo.process.stdout.readline()  # it has accepted the client
                    time.sleep(0.1)
                    echo.end(signal.SIGKILL)
                    code, out, err = client.finish()
                    require(code == 1 and ("closed the channel" in err or "no_channel" in err), f"{code}: {out}{err}")


def test_network_interface_that_stops():
    for language in LANGUAGES:
        with unetd() as (ni, daemon), server(ni, language) as echo:
            daemon.end(signal.SIGTERM)
            code, out, err = echo.finish()
            require(code == 1 and "the network interface is gone" in err, f"{code}: {out}{err}")


def test_no_network_interface():
    for name, *arguments in (("hello",), ("am_hello",), ("echo_server",), ("echo_client", "echo"), ("rpc_ping", "serve"), ("rpc_ping", "call")):
        for language in LANGUAGES:
            refused(1, ["no network interface listens at /tmp/unet-no-such", "unetd", "unet-run"], example(name + language),
                    *arguments, ni="unix:/tmp/unet-no-such")


def test_wrong_arguments():
    for language in LANGUAGES:
        client, echo = example("echo_client" + language), example("echo_server" + language)
        for program in (client, echo):
            out = run_well(program, "--help")
            require("usage: " in out and "Try it:" in out, f"--help does not teach: {out}")
        for arguments in (["-n", "0"], ["-n", "x"], ["-n", "99999999999999999999"], ["-s", "65537"], ["-s", "-1"], ["-w", "3601"]):
            refused(2, [arguments[1], "a number from"], client, *arguments, "echo")
        refused(2, ["far", "auto, local or ni"], client, "-p", "far", "echo")
        refused(2, ["NAME"], client)
        refused(2, ["NAME"], client, "one", "two")
        refused(2, ["--frobnicate", "--help"], client, "--frobnicate", "echo")
        refused(2, ["--frobnicate"], echo, "--frobnicate")
        refused(2, ["two"], echo, "one", "two")


def test_wrong_names():
    with unetd() as (ni, _), server(ni, name="taken"):
        for language in LANGUAGES:
            client, echo = example("echo_client" + language), example("echo_server" + language)
            refused(1, ["nobody"], client, "nobody", ni=ni)
            refused(1, ["is not a valid name"], client, "not a name", ni=ni)
            refused(1, ["no wire"], client, "echo@elsewhere", ni=ni)
            refused(1, ["taken"], echo, "taken", ni=ni)
            refused(1, ["is not a valid name"], echo, "not a name", ni=ni)


def main():
    failed = 0
    for name, test in [(name, value) for name, value in globals().items() if name.startswith("test_")]:
        started = time.monotonic()
        try:
            test()
            print(f"ok      {name} ({time.monotonic() - started:.1f} s)", flush=True)
        except (Failure, subprocess.TimeoutExpired, OSError) as failure:
            print(f"FAILED  {name}: {failure}", flush=True)
            failed += 1
    return 1 if failed else 0


sys.exit(main())
