#!/usr/bin/env python3
# sockets_impaired.py - streams between ipstack's sockets and Linux's kernel over a wire that loses, repeats, reorders and corrupts frames:
# both roles, both directions, every byte checked. The soak (UNET_LONG) sends 256 MiB over that wire, and 2 GiB over a sound one.
#
# `faulty:` impairs the wire in both directions, because a kernel may lack netem. Corruption changes one bit of a frame: checksums detect
# each such change, but not all others.
#
# Usage: sockets_impaired.py UNETD SOCKETS_PEER   (77: no root, no network namespaces)
import os
import subprocess
import sys
import time

import sockets_linux
from daemon import WAIT, Skipped, main, require
from ip_spaces import KERNELS, OURS, VERSIONS
from sockets_linux import interface
from spaces import can_be_made
from tcp_linux import PORT

sockets_linux.UNETD, sockets_linux.SOCKETS_PEER = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) == 3 else ("", "")
SOAK = "UNET_LONG" in os.environ
# Seconds for the whole test: an upper bound below meson's (a soak has none there), because meson could not say what hangs.
PATIENCE = WAIT * 60 if SOAK else 540
END = time.monotonic() + PATIENCE
WORSE = "faulty:loss=1%,duplicate=1%,corrupt=0.1%,bits=1,delay=5ms-20ms,direction=both,frames=16384,seed={} / "
WIRE = "pcap:iface=eth0"


def ends(process, first, what):
    try:
        out, _ = process.communicate(timeout=max(END - time.monotonic(), 1))
        text = out if isinstance(out, str) else out.decode()
        require(text.split("\n")[0] == first, f"{what}: {text}")
    except subprocess.TimeoutExpired:
        require(False, f"{what}: not done after {PATIENCE} s")
    finally:
        process.kill()
        process.wait(WAIT)


def streams(wire, size, count):
    with interface(wire, ",limit=100M", corrupted=True) as ni:
        for v in VERSIONS:
            what = f"{count} x {size} bytes and back by IPv{v}"
            with ni.running("ready", "echo", PORT):
                ends(ni.start_kernel("call", OURS[v], size, count), "True", f"the kernel's {what}")
            peer = ni.start_kernel("echo", KERNELS[v], count)
            try:
                require(peer.stdout.readline().strip() == "listening", "the kernel's side")
                ends(ni.start("call", KERNELS[v], PORT, size, count), "done", f"ours {what}")
            finally:
                ends(peer, "True", "the kernel's echo")


def test_a_bad_wire():
    streams(WORSE.format(1) + WIRE, 32 << 20 if SOAK else 1 << 20, 8 if SOAK else 4)


def test_a_sound_wire():
    if not SOAK:
        raise Skipped("a soak: ./check --long")
    streams(WIRE, 2 << 30, 1)


if __name__ == "__main__":
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
