#!/usr/bin/env python3
# wireshark.py - frames captured between two unetds, as tcpdump and tshark read them: every field that the dissector shows is compared with
# this file's own reading of the bytes.
#
# Usage: wireshark.py UNETD EXAMPLES DISSECTOR      (77: no tshark or tcpdump here)
import os
import shutil
import signal
import struct
import subprocess
import sys

from daemon import WAIT, Unetd, directory, main, require, run, wait_until

UNETD, EXAMPLES, DISSECTOR = (os.path.abspath(p) for p in sys.argv[1:4])
ETHER, HEADER = 14, 24
SIGNALS = ["resolve", "resolved", "connect", "received", "accepted", "rejected", "confirm", "close", "closed", "keepalive", "alive", "goodbye"]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def blocks(path, growing):
    """Type and body of every block of a pcapng file in this machine's byte order; of a growing file, only the whole blocks."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from("=II", data, at) if at + 8 <= len(data) else (0, 0)
        if growing and (length == 0 or at + length > len(data)):
            return
        require(length >= 12 and length % 4 == 0 and at + length <= len(data), f"{path}: a broken block at {at}")
        require(struct.unpack_from("=I", data, at + length - 4)[0] == length, f"{path}: two lengths at {at}")
        yield kind, data[at + 8:at + length - 4]
        at += length


def packets(path, growing=False):
    """(direction, frame) of every packet: 1 came in, 2 went out."""
    for kind, body in blocks(path, growing):
        if kind == 6:
            captured, length = struct.unpack_from("=II", body, 12)
            require(captured == length, "a frame in part")
            code, size, flags = struct.unpack_from("=HHI", body, 20 + (captured + 3) // 4 * 4)
            require((code, size) == (2, 4), "no direction")
            yield flags, body[20:20 + captured]


def text(data, at, most):
    return data[at + 1:at + 1 + min(data[at], most)].decode()


def signal_fields(data):
    version, kind, length, lost, sender, receiver, number = struct.unpack_from(">BBHIQQQ", data)
    fields = {"version": version, "type": kind, "length": length, "lost_after": lost, "from_incarnation": sender,
              "to_incarnation": receiver, "number": number}
    body = data[32:]
    name = SIGNALS[kind - 1]
    if name in ("resolve", "resolved"):
        fields["host"] = text(body, 0, 63)
    elif name == "connect":
        fields["tag"], fields["mtu"], fields["pid"] = struct.unpack_from(">III", body)
        fields["target"], fields["host"] = text(body, 12, 63), text(body, 76, 63)
    elif name == "accepted":
        fields["tag"], fields["connect_tag"] = struct.unpack_from(">II", body)
    elif name == "rejected":
        fields["code"], fields["text"] = struct.unpack_from(">I", body)[0], text(body, 4, 255)
    elif name == "close":
        fields["to_tag"], fields["from_tag"], fields["reason"] = struct.unpack_from(">III", body)
    elif name == "closed":
        fields["to_tag"], fields["from_tag"] = struct.unpack_from(">II", body)
    elif name == "keepalive":
        fields["count"] = struct.unpack_from(">I", body)[0]
        pairs = struct.unpack_from(f">{2 * fields['count']}I", body, 4)
        if pairs:
            fields["from_tag"], fields["to_tag"] = list(pairs[0::2]), list(pairs[1::2])
    return {"unet.signal." + key: value for key, value in fields.items()}


def frame_fields(frame):
    """The fields of a frame that the dissector must show."""
    version, flags, length, tag, message, offset, total, crc = struct.unpack_from(">BBHIIIII", frame, ETHER)
    fields = {"unet.version": version, "unet.flags": flags, "unet.flags.put": flags & 1, "unet.flags.notify": flags >> 1 & 1,
              "unet.length": length, "unet.tag": tag, "unet.tag.index": tag & 0xFFFF, "unet.tag.generation": tag >> 16,
              "unet.message": message, "unet.offset": offset, "unet.total": total, "unet.crc": crc}
    start = ETHER + HEADER
    if flags & 1:
        fields["unet.region_offset"] = struct.unpack_from(">Q", frame, start)[0]
        start += 8
    payload = frame[start:start + length]
    require(crc == crc32c(frame[ETHER:ETHER + 20] + frame[ETHER + HEADER:start + length]), "a frame with a wrong crc")
    if tag == 0:
        fields |= signal_fields(payload)
    elif payload:
        fields["unet.payload"] = payload.hex()
    return fields


def every_field():
    with open(DISSECTOR, encoding="utf-8") as file:
        source = file.read()
    return [word.split('"')[1] for word in source.split("ProtoField.")[1:]]


FIELDS = every_field()


def tshark(path, *args):
    status, out, err = run("tshark", "-n", "-X", "lua_script:" + DISSECTOR, "-r", path, *args)
    require(status == 0, f"tshark {args}: {status} {err}")
    require("lua" not in err.lower() and "dissector" not in err.lower(), f"tshark complains: {err}")
    return out


def shown(path):
    """The fields of each frame that the dissector shows: field -> list of texts."""
    names = FIELDS + ["_ws.expert.message"]
    arguments = [part for name in names for part in ("-e", name)]
    out = tshark(path, "-T", "fields", "-E", "separator=/t", "-E", "aggregator=|", *arguments)
    for line in out.split("\n")[:-1]:
        yield {name: cell.split("|") for name, cell in zip(names, line.split("\t")) if cell != ""}


def value(text_of_field, like):
    if isinstance(like, str):
        return text_of_field
    return {"True": 1, "False": 0}.get(text_of_field) if text_of_field in ("True", "False") else int(text_of_field, 0)


def compare(path):
    """Every frame of the file: tshark shows exactly its fields. Returns the fields seen."""
    wanted = [frame_fields(frame) for _, frame in packets(path)]
    seen = list(shown(path))
    require(len(wanted) == len(seen), f"{len(wanted)} frames, and tshark shows {len(seen)}")
    for number, (want, see) in enumerate(zip(wanted, seen), 1):
        require(set(see) == set(want), f"frame {number}: fields {set(see) ^ set(want)}: {see}")
        for name, each in want.items():
            each = each if isinstance(each, list) else [each]
            got = [value(cell, like) for cell, like in zip(see[name], each)]
            require(got == each and len(see[name]) == len(each), f"frame {number}: {name} is {each}, shown as {see[name]}")
    return wanted


def example(name, socket, *args, **env):
    return run(os.path.join(EXAMPLES, name), *args, env=os.environ | {"UNET_NI": "unix:" + socket} | env)


def put_across(d):
    receiver = subprocess.Popen([os.path.join(EXAMPLES, "put")], env=os.environ | {"UNET_NI": f"unix:{d}/b", "UNET_RANK": "0"},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        status, _, err = example("put", d + "/a", "put/0@beta", UNET_RANK="1")
        require(status == 0, f"put: {err}")
        out = receiver.communicate(timeout=WAIT)[0]
    finally:
        receiver.kill()
        receiver.wait(WAIT)
    require("where nobody copied it." in out, f"put: {out}")


def leave_in_silence(d, server, ni):
    """The server stops in the middle of a client's messages: signs of life pass, and finally an NI says goodbye."""
    client = None

    def stopped_in_the_middle():
        """Few messages, so that reading the files is quick, however late this comes: if it comes too late, tries again."""
        nonlocal client
        if client is not None:
            server.send_signal(signal.SIGCONT)
            client.wait(WAIT)
        before = os.path.getsize(d + "/a.pcapng")
        client = subprocess.Popen([os.path.join(EXAMPLES, "echo_client"), "-n", "3000", "-s", "0", "echo@beta"],
                                  env=os.environ | {"UNET_NI": f"unix:{d}/a"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: os.path.getsize(d + "/a.pcapng") > before + 2000, "no echo is captured")
        server.send_signal(signal.SIGSTOP)
        wait_until(lambda: client.poll() is not None or "keepalive" in signals_of(packets(d + "/a.pcapng", growing=True)), "no keepalive")
        return client.poll() is None

    try:
        wait_until(stopped_in_the_middle, "the server is never stopped in time")
        require(ni.stop() == 0, "unetd alpha")
    finally:
        if client is not None:
            client.kill()
            client.wait(WAIT)


def signals_of(frames):
    return {SIGNALS[frame[ETHER + HEADER + 1] - 1] for _, frame in frames if struct.unpack_from(">I", frame, ETHER + 4)[0] == 0}


def capture(d):
    """Two NIs over a memif: messages short and in fragments, puts, a refusal, silence long enough for signs of life, and ends."""
    def port(side, role):
        return f"capture:file={d}/{side}.pcapng / dpdk:net_memif0,role={role},socket={d}/memif"

    with Unetd(UNETD, "--socket", d + "/a", "--host", "alpha", "--port", port("a", "server")) as a, \
            Unetd(UNETD, "--socket", d + "/b", "--host", "beta", "--port", port("b", "client")) as b:
        server = subprocess.Popen([os.path.join(EXAMPLES, "echo_server"), "echo"], env=os.environ | {"UNET_NI": f"unix:{d}/b"},
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for size in ("0", "10", "5000"):
                status, _, err = example("echo_client", d + "/a", "--wait", str(WAIT // 2), "-n", "3", "-s", size, "echo@beta")
                require(status == 0, f"echo_client: {err}")
            put_across(d)
            status, _, err = example("echo_client", d + "/a", "nobody@beta")
            require(status != 0 and "nobody" in err, f"a connect to nobody: {status} {err}")
            leave_in_silence(d, server, a)
        finally:
            server.kill()
            server.wait(WAIT)
        require(b.stop() == 0, "unetd beta")


def test_every_field_of_real_frames():
    with directory() as d:
        capture(d)
        names, kinds = set(), set()
        for side in "ab":
            frames = compare(f"{d}/{side}.pcapng")
            names |= {name for fields in frames for name in fields}
            kinds |= signals_of(packets(f"{d}/{side}.pcapng"))
        missing = set(FIELDS) - names
        require(not missing, f"in no frame: {missing}")
        required = {"resolve", "resolved", "connect", "accepted", "rejected", "confirm", "close", "closed", "keepalive", "goodbye"}
        require(required <= kinds, f"signals that did not come: {required - kinds}")
        look_at_both_ends(d)
        look_at_damage(d)
        look_at_lines(d)


def look_at_both_ends(d):
    """One side's sent frames are the other's received ones, and tcpdump sees equally many."""
    sides = {side: list(packets(f"{d}/{side}.pcapng")) for side in "ab"}
    for out, into in ("ab", "ba"):
        sent = [frame for direction, frame in sides[out] if direction == 2]
        came = [frame for direction, frame in sides[into] if direction == 1]
        # The last frames may be unreceived: one of the NIs stops first.
        require(came and came == sent[:len(came)], f"{out} sent {len(sent)} frames, {into} received {len(came)} others")
    for side, both in sides.items():
        status, out, err = run("tcpdump", "-n", "-r", f"{d}/{side}.pcapng", "ether", "proto", "0x88b5")
        require(status == 0 and out.count("ethertype") == len(both), f"tcpdump: {status} {err} {out.count('ethertype')} of {len(both)}")


def look_at_damage(d):
    """A changed bit anywhere behind the Ethernet header of a message is detected."""
    with open(d + "/a.pcapng", "rb") as file:
        data = file.read()
    frame = next(frame for _, frame in packets(d + "/a.pcapng") if frame_fields(frame)["unet.length"] == 10)
    for at, word in ((ETHER + 8, "crc is wrong"), (ETHER + HEADER + 3, "crc is wrong"), (ETHER, "Not our version"), (ETHER + 1, "Unknown flags"),
                     (ETHER + 15, "part of no message")):
        damaged = bytearray(frame)
        damaged[at] ^= 0x10
        with open(d + "/damaged.pcapng", "wb") as file:
            file.write(data.replace(frame, bytes(damaged), 1))
        messages = [text for each in shown(d + "/damaged.pcapng") for text in each.get("_ws.expert.message", [])]
        require(any(word in message for message in messages), f"byte {at} damaged: {messages}")


def look_at_lines(d):
    """The packet list describes a frame in words, and filters find frames."""
    lines = tshark(d + "/a.pcapng")
    for words in ("who is beta?", "connect echo from alpha", "rejected", "close tag", "from 1472: ", "to region offset"):
        require(words in lines, f"no '{words}' in {lines}")
    found = tshark(d + "/a.pcapng", "-Y", "unet.flags.put == 1 && unet.total == 18")
    require(found.count("put ") >= 1, f"the first put is not found: {found}")


if shutil.which("tshark") is None or shutil.which("tcpdump") is None:
    print("skipped: no tshark or no tcpdump here: apt-get install tshark tcpdump")
    sys.exit(77)
sys.exit(main(globals()))
