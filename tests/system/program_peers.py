# program_peers.py - servers and clients in plain Python without any knowledge of U-Net: asyncio, http.server, clients of a page, and a
# memcached client that checks every answer; started by sockets_programs.py.
#
# Usage: program_peers.py PEER ADDRESS PORT ...
import asyncio
import hashlib
import http.client
import http.server
import os
import socket
import sys
import threading
import time

CLIENTS = 100


# ---- asyncio


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


class EchoDatagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.transport.sendto(data, addr)


async def asyncio_server(address, port):
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(EchoDatagrams, local_addr=(address, port))
    server = await asyncio.start_server(echo, address, port, backlog=CLIENTS)
    print("ready", flush=True)
    await server.serve_forever()


async def one_client(number, address, port, size):
    """Writes and reads at the same time, because neither side can buffer all of it."""
    reader, writer = await asyncio.open_connection(address, port)
    data = number.to_bytes(4, "big") + os.urandom(size)

    async def send():
        for begin in range(0, len(data), 1000):
            writer.write(data[begin:begin + 1000])
            await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    back = await reader.read(-1)
    await sending
    writer.close()
    await writer.wait_closed()
    return back == data


class Answer(asyncio.DatagramProtocol):
    def __init__(self):
        self.came = asyncio.get_running_loop().create_future()

    def datagram_received(self, data, addr):
        if not self.came.done():
            self.came.set_result(data)


async def one_datagram(address, port, size):
    for _ in range(20):
        transport, answer = await asyncio.get_running_loop().create_datagram_endpoint(Answer, remote_addr=(address, port))
        data = os.urandom(size)
        transport.sendto(data)
        try:
            return await asyncio.wait_for(answer.came, 1) == data
        except asyncio.TimeoutError:
            continue
        finally:
            transport.close()
    return False


async def asyncio_clients(address, port, size):
    streams = await asyncio.gather(*[one_client(i, address, port, size) for i in range(CLIENTS)])
    datagrams = [await one_datagram(address, port, each) for each in (1, 2, 1000, 8000)]
    print(f"{sum(streams)} streams, {sum(datagrams)} datagrams")


# ---- HTTP


class Uploads(http.server.BaseHTTPRequestHandler):
    """Answers with the hash of the uploaded data, and keeps the connection."""
    protocol_version = "HTTP/1.1"

    def take(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            hash_ = hashlib.sha256()
            while size := int(self.rfile.readline(), 16):
                hash_.update(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        else:
            hash_ = hashlib.sha256(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        answer = hash_.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_PUT = take


def http_uploads(address, port):
    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    server = Server((address, port), Uploads)
    print("ready", flush=True)
    server.serve_forever()


def http_clients(address, port, threads, milliseconds):
    """Get a page, each time over a new connection; prints the hashes of the pages."""
    until, hashes, served = time.monotonic() + milliseconds / 1000, set(), []

    def ask():
        while time.monotonic() < until:
            client = http.client.HTTPConnection(address, port, timeout=60)
            client.request("GET", "/8.bin", headers={"Connection": "close"})
            hashes.add(hashlib.sha256(client.getresponse().read()).hexdigest())
            client.close()
        served.append(True)

    all_of_them = [threading.Thread(target=ask) for _ in range(threads)]
    for each in all_of_them:
        each.start()
    for each in all_of_them:
        each.join()
    print(*hashes)
    sys.exit(len(served) != threads)


# ---- memcached


class Memcached:
    def __init__(self, address, port):
        self.socket = socket.create_connection((address, port))
        self.file = self.socket.makefile("rwb")

    def says(self, command, data=None):
        self.file.write(command.encode() + b"\r\n" + (b"" if data is None else data + b"\r\n"))
        self.file.flush()
        return self.file.readline().strip().decode()

    def must(self, answer, command, data=None):
        said = self.says(command, data)
        if said != answer:
            raise ValueError(f"{command}: {said}, not {answer}")

    def get(self, *keys):
        found = {}
        line = self.says("get " + " ".join(keys))
        while line != "END":
            _, key, _, size = line.split()
            found[key] = self.file.read(int(size) + 2)[:-2]
            line = self.file.readline().strip().decode()
        return found


def memcached_thread(address, port, number, count, right):
    client = Memcached(address, port)
    values = {f"k{number}-{i}": os.urandom(1 + (i * 7919) % 20_000) for i in range(count)}
    for key, value in values.items():
        client.must("STORED", f"set {key} 0 0 {len(value)}", value)
    keys = list(values)
    for begin in range(0, count, 20):
        some = keys[begin:begin + 20]
        if client.get(*some) != {key: values[key] for key in some}:
            raise ValueError(f"other values came back for {some}")
    client.must("DELETED", f"delete {keys[0]}")
    client.must("NOT_FOUND", f"delete {keys[0]}")
    for _ in range(count):
        client.says("incr counter 1")
    right.append(number)


def datagram_get(address, port, key):
    """By memcached's UDP: a header of 8 bytes, the request in one datagram."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(1)
        udp.connect((address, port))
        for number in range(20):
            udp.send(bytes([0, number, 0, 0, 0, 1, 0, 0]) + f"get {key}\r\n".encode())
            try:
                answer = udp.recv(65536)
            except socket.timeout:
                continue
            if answer[1] == number:
                return answer[8:].decode()
    return "nothing"


def memcached_clients(address, port, threads, count):
    first = Memcached(address, port)
    first.must("STORED", "set counter 0 0 1", b"0")
    big = os.urandom(1_000_000)
    first.must("STORED", f"set big 0 0 {len(big)}", big)
    right = []
    all_ = [threading.Thread(target=memcached_thread, args=(address, port, i, count, right)) for i in range(threads)]
    for each in all_:
        each.start()
    for each in all_:
        each.join()
    counter = first.get("counter")["counter"].decode()
    by_udp = datagram_get(address, port, "counter")
    if first.get("big")["big"] != big or f"\r\n{counter}\r\n" not in by_udp:
        raise ValueError(f"big, or by UDP: {by_udp!r}")
    print(f"{len(right)} threads, counted {counter}")


# ---- ancillary data of a datagram

SO_TIMESTAMPNS, IP_RECVTTL, IP_RECVTOS, IP_PKTINFO = 35, 12, 13, 8
ASKED = {4: [(socket.IPPROTO_IP, each) for each in (IP_RECVTTL, IP_RECVTOS, IP_PKTINFO)],
         6: [(socket.IPPROTO_IPV6, each) for each in (socket.IPV6_RECVHOPLIMIT, socket.IPV6_RECVTCLASS, socket.IPV6_RECVPKTINFO)]}
TOLD = {4: [(socket.IPPROTO_IP, each) for each in (socket.IP_TTL, socket.IP_TOS, IP_PKTINFO)],
        6: [(socket.IPPROTO_IPV6, each) for each in (socket.IPV6_HOPLIMIT, socket.IPV6_TCLASS, socket.IPV6_PKTINFO)]}


def marked_socket(version):
    udp = socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM)
    for level, name in ASKED[version] + [(socket.SOL_SOCKET, SO_TIMESTAMPNS)]:
        udp.setsockopt(level, name, 1)
    return udp


def receive_marked(udp, version):
    """The data, its sender, and hop limit, traffic class and destination; its time stamp is of the last minute."""
    data, control, _, peer = udp.recvmsg(1000, 1000)
    told = {(level, kind): value for level, kind, value in control}
    hops, traffic_class, destination = (told.get(each, b"") for each in TOLD[version])
    seconds = int.from_bytes(told.get((socket.SOL_SOCKET, SO_TIMESTAMPNS), b"")[:8], sys.byteorder)
    if abs(time.time() - seconds) > 60:
        raise ValueError(f"it came at {seconds}")
    to = socket.inet_ntop(udp.family, destination[:16] if version == 6 else destination[8:12])
    return data, peer, f"{int.from_bytes(hops, sys.byteorder)} {int.from_bytes(traffic_class, sys.byteorder)} {to}"


def send_marked(udp, version, data, peer, hops, traffic_class, source=None):
    values = [number.to_bytes(4, sys.byteorder) for number in (hops, traffic_class)]
    if source is not None:
        packed = socket.inet_pton(udp.family, source)
        values.append(packed + bytes(4) if version == 6 else bytes(4) + packed + bytes(4))
    udp.sendmsg([data], [(*kind, value) for kind, value in zip(TOLD[version], values)], 0, peer)


def marks_server(address, port):
    """Answers with the question's ancillary data, from the address that the question was sent to."""
    version = 6 if ":" in address else 4
    with marked_socket(version) as udp:
        udp.bind(("::" if version == 6 else "0.0.0.0", port))
        print("ready", flush=True)
        while True:
            _, peer, told = receive_marked(udp, version)
            send_marked(udp, version, told.encode(), peer, 41, 0x2A, told.split()[2])


def marks_client(address, port, hops, traffic_class):
    version = 6 if ":" in address else 4
    with marked_socket(version) as udp:
        udp.settimeout(1)
        for _ in range(20):
            send_marked(udp, version, b"question", (address, port), hops, traffic_class)
            try:
                data, peer, told = receive_marked(udp, version)
            except socket.timeout:
                continue
            print(data.decode(), "from", peer[0], "by", *told.split()[:2])
            return


PEERS = {"marks-server": marks_server, "marks-client": marks_client,
         "asyncio-server": lambda address, port: asyncio.run(asyncio_server(address, port)),
         "asyncio-clients": lambda address, port, size: asyncio.run(asyncio_clients(address, port, size)),
         "http-uploads": http_uploads, "http-clients": http_clients, "memcached-clients": memcached_clients}

if __name__ == "__main__":
    PEERS[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
