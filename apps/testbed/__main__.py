# __main__.py - testbed: hosts to try U-Net between. testbeds.py makes and removes them; the other commands use them.
import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # until main() handles it: ends without a traceback

# pylint: disable=wrong-import-position
import json
import os
import sys

from failure import Failure, Usage
import command_line
import execution
import interruption
import measuring
import state as states
import testbeds


def wire_of(state):
    if state["kind"] == "ssh":
        return "real hosts, reached by ssh"
    how = "on a bridge" if state["bridge"] else "joined directly"
    faulty = ", worsened: " + state["hosts"][0]["ports"][0].split(" / ")[0] if " / " in state["hosts"][0]["ports"][0] else ""
    return f"{state['wire']}, mtu {state['mtu']}, {how}{faulty}"


def up(options):
    state = testbeds.up(options)
    name, hosts = states.option(state["name"]), [host["name"] for host in state["hosts"]]
    every = "; each has had an echo from each other" if options.check else ""
    print(f"testbed '{state['name']}' is up: {', '.join(hosts)} ({wire_of(state)}){every}\n"
          f"next:\n"
          f"  testbed exec{name} {hosts[1]} -- echo_server echo &\n"
          f"  testbed exec{name} {hosts[0]} -- echo_client --wait 5 echo@{hosts[1]}\n"
          f"  testbed bench{name}\n"
          f"  testbed down{name}")
    return 0


def status(options):
    state = states.load_complete(options.name)
    rows = []
    for host in testbeds.hosts_of(state):
        alive = host.is_up()
        rows.append({"host": host.name, "up": alive, "pid": host.record.get("pid") if alive else None,
                     "seconds": round(host.age(), 1) if alive else None, "at": host.place(), "ports": host.record["ports"]})
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        print(f"testbed '{state['name']}': {wire_of(state)}")
        for row in rows:
            unetd = f"up for {testbeds.uptime(row['seconds'])}, pid {row['pid']}" if row["up"] else "not running"
            print(f"  {row['host']}  unetd {unetd}  {row['at']}  {', '.join(row['ports'])}")
    return 0 if all(row["up"] for row in rows) else 1


def logs(options):
    state = states.load_complete(options.name)
    if options.console and state["kind"] != "vm":
        raise Usage("--console is for virtual machines")
    hosts = testbeds.hosts_of(state) if options.host == "all" else [testbeds.host_called(state, options.host)]
    for host in hosts:
        text = host.console() if options.console else host.log()
        print((f"==> {host.name} <==\n" if options.host == "all" else "") + text, end="")
    return 0


def show_list(_):
    for name in states.names():
        state = states.load(name)
        if state is None:
            continue  # removed meanwhile
        print(f"{name}  " + (f"{len(state['hosts'])} hosts: {wire_of(state)}" if state["complete"] else
                             f"incomplete; if no `testbed up` is running: testbed down{states.option(name)}"))
    return 0


def down(options):
    removed = testbeds.down(options.name, options.forget)
    print(f"testbed '{options.name}' is removed" if removed else f"there is no testbed '{options.name}': nothing to remove")
    return 0


def execute(options):
    return execution.run(states.load_complete(options.name), options.host, options.program)


def bench(options):
    return measuring.run(states.load_complete(options.name), options)


COMMANDS = {"up": up, "exec": execute, "bench": bench, "status": status, "logs": logs, "list": show_list, "down": down}


def main():
    try:
        interruption.install()
        options = command_line.parse(sys.argv[1:])
        return COMMANDS[options.command](options)
    except Failure as failure:
        print(f"testbed: {failure}", file=sys.stderr)
        return failure.status
    except BrokenPipeError:
        return Failure.status  # the reader is gone, so there is no place for an error message
    except OSError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return Failure.status
    except KeyboardInterrupt as interrupt:
        print("testbed: interrupted", file=sys.stderr)
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)


if __name__ == "__main__":
    STATUS = main()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(STATUS)
