#!/usr/bin/env python3
# dhcp_server.py - a DHCP server that leases a few addresses, in a namespace of a test; for ip_linux.py.
#
# Usage: dhcp_server.py INTERFACE OWN-ADDRESS LEASE-SECONDS ADDRESS...
#
# Prints a line for each message: `discover`, `request ADDRESS`, `renew ADDRESS`, `decline ADDRESS`.
import socket
import struct
import sys

COOKIE = b"\x63\x82\x53\x63"
DISCOVER, OFFER, REQUEST, DECLINE, ACK, NAK = range(1, 7)
MASK, ROUTER, MTU, REQUESTED, LEASE, KIND, SERVER = 1, 3, 26, 50, 51, 53, 54


def options_of(message):
    options, at = {}, 240
    while at < len(message) and message[at] != 255:
        if message[at] == 0:
            at += 1
            continue
        options[message[at]] = message[at + 2:at + 2 + message[at + 1]]
        at += 2 + message[at + 1]
    return options


def answer(message, kind, own, lease, address):
    yours = address if kind != NAK else bytes(4)
    fixed = struct.pack("!BBBB4sHH4s4s4s4s", 2, 1, 6, 0, message[4:8], 0, 0x8000, bytes(4), yours, bytes(4), bytes(4))
    fixed += message[28:44] + bytes(192)  # the station's address; no name, no file
    said = [(KIND, bytes([kind])), (SERVER, own)]
    if kind != NAK:
        said += [(LEASE, struct.pack("!I", lease)), (MASK, bytes([255, 255, 255, 0])), (ROUTER, own), (MTU, struct.pack("!H", 1400))]
    return fixed + COOKIE + b"".join(bytes([code, len(value)]) + value for code, value in said) + b"\xff"


def main():
    interface, own, lease, *pool = sys.argv[1:]
    own, lease, pool = socket.inet_aton(own), int(lease), [socket.inet_aton(each) for each in pool]
    given = {}  # by station
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        udp.bind(("0.0.0.0", 67))
        print("ready", flush=True)
        while True:
            message, sender = udp.recvfrom(2048)
            if len(message) < 300 or message[0] != 1 or message[236:240] != COOKIE:
                print("malformed", flush=True)
                continue
            options, station, client = options_of(message), message[28:34], message[12:16]
            kind = options[KIND][0]
            asked = options.get(REQUESTED, client)
            if kind == DISCOVER:
                print("discover", flush=True)
                if station not in given and pool:
                    given[station] = pool.pop(0)
            elif kind == DECLINE:
                print(f"decline {socket.inet_ntoa(asked)}", flush=True)
                given.pop(station, None)
                continue
            else:
                print(f"{'renew' if any(client) else 'request'} {socket.inet_ntoa(asked)}", flush=True)
            if station not in given:
                continue
            right = OFFER if kind == DISCOVER else ACK if asked == given[station] else NAK
            # A client with an address gets the answer there; one without hears only broadcasts.
            to = sender[0] if any(client) else "255.255.255.255"
            udp.sendto(answer(message, right, own, lease, given[station]), (to, 68))


if __name__ == "__main__":
    main()
