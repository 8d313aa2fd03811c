# tools.py - what unetctl and unet-bench know, as records: pandas.DataFrame(records) is a table of them.
from __future__ import annotations

import json
import subprocess
from typing import Any

from .errors import UnetError


class Record(dict[str, Any]):
    """A JSON object. Its members are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this record has {', '.join(self)}, and no {name}") from None


def _run(program: str, *arguments: str) -> Any:
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UnetError(f"{program} is not in $PATH: it comes with U-Net's programs") from None
    if done.returncode != 0:
        raise UnetError(done.stderr.strip() or f"{program} ended with status {done.returncode}")
    return json.loads(done.stdout, object_hook=Record)


def unetctl(view: str, *options: str, ni: str | None = None) -> Any:
    """Runs `unetctl VIEW --json`: "endpoints", "channels", "names", "counters", "ports", "stats", "all" ...

    Most views are a list of records.
    """
    return _run("unetctl", *(["--ni", ni] if ni is not None else []), view, *options, "--json")


def sockets(*filters: str, ni: str | None = None) -> list[Record]:
    """The sockets of unmodified programs, with the details of TCP connections: sockets("dport", "=", ":443"), as in `unetctl ss`."""
    return list(unetctl("ss", "--all", "--info", *filters, ni=ni))


def socket_counters(ni: str | None = None) -> list[Record]:
    """The counters of each such program's sockets."""
    return list(unetctl("ss", "--stacks", ni=ni))


def bench(*arguments: str) -> list[Record]:
    """The results of `unet-bench run`: bench("rtt", "--size", "8,4K"). p50 is the median, in the record's unit."""
    return list(_run("unet-bench", "run", *arguments, "--json", "-"))
