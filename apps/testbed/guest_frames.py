# guest_frames.py - the frames between guest_client.py and guest_agent.py: a kind, a length, and so many bytes.
import os
import struct

HEAD = struct.Struct("!cI")
CHUNK = 32768  # bytes of a program's input or output in one frame, at most

# To the guest: a program as JSON; bytes of its standard input, none at its end; the number of a signal.
BEGIN, INPUT, SIGNAL = b"b", b"i", b"s"
# From the guest: bytes; the program has taken the last input; its exit status.
OUTPUT, ERROR, TAKEN, EXIT = b"o", b"e", b"t", b"x"


def pack(kind, body=b""):
    return HEAD.pack(kind, len(body)) + body


def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data):]


class Reader:
    """Makes frames of bytes. `read` returns the next bytes, and none at the end."""

    def __init__(self, read, begin=b""):
        self.read, self.bytes = read, begin

    def frame(self):
        """Returns kind and bytes of the next frame; None at the end."""
        while len(self.bytes) < HEAD.size or len(self.bytes) < HEAD.size + HEAD.unpack_from(self.bytes)[1]:
            more = self.read()
            if not more:
                self.bytes = b""
                return None
            self.bytes += more
        kind, length = HEAD.unpack_from(self.bytes)
        body, self.bytes = self.bytes[HEAD.size:HEAD.size + length], self.bytes[HEAD.size + length:]
        return kind, body
