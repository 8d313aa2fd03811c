#!/usr/bin/env python3
# sockets_programs.py - Debian's programs, unmodified, on U-Net's sockets by unet-sockets: as servers of a kernel's clients, as clients of a
# kernel's servers over the same wire, and with each other on one host. Received data is compared with sent data where the program allows
# it. The soak (UNET_LONG) sends more data, also between two kernels.
#
# Usage: sockets_programs.py PROGRAM UNETD UNET_SOCKETS LIBUNET_EMBEDDED   (77: no root, no network namespaces, or no such program)
#
# Without UNET_SOCKETS both ends are a kernel's, which tests this file itself.
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from daemon import NOBODY, WAIT, Failure, attempt, others_may_run, require, wait_until
import program_loops
import program_postgres
from program_roles import each_version, end, roles
from spaces import can_be_made

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program_peers.py")
LONG = "UNET_LONG" in os.environ
PORT = 8300
MIB = 1 << 20
PACKAGES = {"ab": "apache2-utils", "apache2": "apache2-bin", "nginx": "nginx-light", "redis-server": "redis-server",
            "redis-benchmark": "redis-tools", "nc": "netcat-openbsd", "in.tftpd": "tftpd-hpa", "tftp": "tftp-hpa",
            "node": "nodejs", "dig": "bind9-dnsutils", "dnsmasq": "dnsmasq-base", program_postgres.PGBENCH: "postgresql-15"}


def bracketed(address):
    return f"[{address}]" if ":" in address else address


def hash_of(data):
    return hashlib.sha256(data).hexdigest()


def python_peer(name, *args):
    return [sys.executable, PEERS, name, *args]


# ---- iperf3


def iperf3(role):
    size = "1G" if LONG else "16M"
    with role.server.server("iperf3", "-s", "--forceflush", ready="Server listening on") as server:
        role.listening = lambda tests: server.said().count("Server listening on") > tests
        role.tests = 0
        for v, address in each_version(role):
            streams = [["-n", size, "-P", "8"], ["-n", size, "-R"], ["-t", "1", "--bidir"], ["-n", size, "-Z"], ["-n", size]]
            for options in streams if v == 4 or LONG else streams[:2]:
                sent, received = iperf3_bytes(role, address, options)
                # The client does not wait for data in flight at its end: with many streams that is most of it.
                require(sent >= 100_000 <= received, f"{options} by IPv{v}: {sent} bytes sent, {received} received")
            for length in (64, 1400):
                sent, received = iperf3_bytes(role, address, ["-u", "-b", "100M", "-l", length, "-n", length * 5000])
                require(received > sent / 10 > 0, f"datagrams of {length} bytes by IPv{v}: {sent} bytes sent, {received} received")
            sent, received = iperf3_bytes(role, address, ["-u", "-b", "100M", "-R", "-n", MIB])
            require(received > sent / 10 > 0, f"datagrams to the client by IPv{v}: {sent} bytes sent, {received} received")


def iperf3_bytes(role, address, options):
    # Between two tests the server closes its listener: a call then is refused or reset.
    wait_until(lambda: role.listening(role.tests), "iperf3's server does not listen again")
    role.tests += 1
    told = json.loads(role.client.text("iperf3", "-c", address, "-J", *options))
    require("error" not in told, f"iperf3 {options}: {told.get('error')}")
    end = told["end"]
    if "sum_sent" in end:
        return end["sum_sent"]["bytes"], end["sum_received"]["bytes"]
    lost = end["sum"]  # datagrams
    return end["sum"]["bytes"], end["sum"]["bytes"] * (1 - lost["lost_percent"] / 100)


# ---- nginx and curl

NGINX = """daemon off; user {user}; worker_processes 2; pid {d}/nginx.pid; error_log {d}/error.log notice;
events {{ worker_connections 512; }}
http {{
  access_log off; sendfile on; tcp_nopush on; root {d}/pages;
  client_body_temp_path {d}/t1; proxy_temp_path {d}/t2; fastcgi_temp_path {d}/t3; uwsgi_temp_path {d}/t4; scgi_temp_path {d}/t5;
  keepalive_requests 100000;
  server {{ {listen}
    location /version {{ return 200 "{version} $pid\\n"; }}
    location /copied/ {{ alias {d}/pages/; sendfile off; }}
  }}
}}
"""


class Nginx:
    def __init__(self, role, user="root"):
        """`user`: of the workers."""
        self.role, self.d, self.user = role, role.directory, user
        os.chmod(self.d, 0o755)
        role.subdirectory("pages")
        self.big = os.urandom((256 if LONG else 16) * MIB + 12345)
        self.pages = {f"{i}.bin": os.urandom(1 + i * i * 4000) for i in range(16)} | {"big.bin": self.big}
        for name, data in self.pages.items():
            role.file(f"pages/{name}", data)
        self.configure("first")

    def configure(self, version):
        listen = " ".join(f"listen {bracketed(a)}:{PORT};" for _, a in each_version(self.role))
        self.role.file("nginx.conf", NGINX.format(d=self.d, user=self.user, listen=listen, version=version).encode())

    @contextlib.contextmanager
    def running(self):
        command = [shutil.which("nginx") or "/usr/sbin/nginx", "-c", f"{self.d}/nginx.conf", "-p", self.d, "-e", f"{self.d}/error.log"]
        with self.role.server.server(*command, when=lambda: os.path.exists(f"{self.d}/nginx.pid")) as process:
            yield process

    def says(self, words):
        try:
            with open(f"{self.d}/error.log", encoding="utf-8", errors="replace") as file:
                return file.read().count(words)
        except FileNotFoundError:
            return 0

    def master(self):
        with open(f"{self.d}/nginx.pid", encoding="utf-8") as file:
            return int(file.read())

    def version(self, address):
        return self.role.client.text("curl", "-sS", "-m", "60", f"http://{bracketed(address)}:{PORT}/version").split()


def nginx(role):
    site = Nginx(role, "nobody nogroup")
    with site.running():
        worker = int(site.version(role.addresses[4])[1])
        require(os.stat(f"/proc/{worker}").st_uid == NOBODY, "a worker is not another user's process")
        for _, address in each_version(role):
            url = f"http://{bracketed(address)}:{PORT}"
            for path in ("/big.bin", "/copied/big.bin"):
                require(role.client.run("curl", "-sS", "-m", "300", url + path) == site.big, f"{path} came otherwise")
            wrk(role, url + "/8.bin")
        reload(role, site, role.addresses[4])
        errors = [site.says(f"[{level}]") for level in ("error", "crit", "alert", "emerg")]
        require(not any(errors), f"nginx complains: {role.file('error.log')}: {errors}")


def wrk(role, url):
    look_at_wrk(role.client.text("wrk", "-t", "1", "-c", "32", "-d", "10s" if LONG else "1s", "--timeout", "60s", url), url)


def look_at_wrk(said, url):
    require("Non-2xx" not in said and "Socket errors" not in said, f"wrk {url}: {said}")
    require(int(re.search(r"(\d+) requests in", said)[1]) > 32, f"wrk {url}: {said}")


def reload(role, site, address):
    """New workers take the listeners over, and the old ones finish their requests; no client is refused meanwhile."""
    require(site.version(address)[0] == "first", "the first version")
    url = f"http://{bracketed(address)}:{PORT}"
    old = role.client.start("curl", "-sS", "-m", "300", "--limit-rate", "12M", "-o", role.file("slow.bin"), f"{url}/big.bin")
    site.configure("second")
    pages = role.client.start(*python_peer("http-clients", address, PORT, 8, 2000), stdout=subprocess.PIPE)
    # A connection for each request: a lasting one may be closed, as idle, at the moment of the next request.
    asks = role.client.start("wrk", "-t", "1", "-c", "8", "-d", "2s", "--timeout", "60s", "-H", "Connection: close", f"{url}/3.bin",
                             stdout=subprocess.PIPE)
    for _ in range(10):
        os.kill(site.master(), 1)
        time.sleep(0.15)
    wait_until(lambda: site.version(address)[0] == "second", "after a reload there is still the first version")
    told, _ = pages.communicate(timeout=WAIT)
    require(pages.returncode == 0, "who called during the reload was not served")
    require(told.decode().split() == [hash_of(site.pages["8.bin"])], "what came to who called during the reload came otherwise")
    said, _ = asks.communicate(timeout=WAIT)
    require(asks.returncode == 0, f"wrk during the reload ends with {asks.returncode}")
    look_at_wrk(said.decode(), "during the reload")
    require(old.wait(WAIT) == 0, "what was under way during the reload failed")
    with open(role.file("slow.bin"), "rb") as file:
        require(file.read() == site.big, "what was under way during the reload came otherwise")
    wrk(role, f"{url}/3.bin")
    with few_ports(role.client):
        asks = ab_start(role, f"{url}/version", "-c", 10, "-t", 20 if LONG else 4, "-n", 10_000_000)
        while asks.poll() is None:
            os.kill(site.master(), 1)
            time.sleep(0.3)
        look_at_ab(asks)


@contextlib.contextmanager
def few_ports(side):
    """A kernel's client calls again and again from the same ports: another worker gets a connection where one had an old connection of that
    port."""
    name = "net.ipv4.ip_local_port_range"
    before = side.text("sysctl", "-n", name).split()
    if not side.is_ours:
        side.run("sysctl", "-q", "-w", f"{name}=40000 40200")
    yield
    if not side.is_ours:
        side.run("sysctl", "-q", "-w", f"{name}={' '.join(before)}")


def ab_start(role, url, *options):
    """One connection for each request."""
    return role.client.start("ab", "-q", "-r", "-l", "-s", "60", *options, url, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def look_at_ab(process):
    said, _ = process.communicate(timeout=WAIT)
    said = said.decode()
    right = process.returncode == 0 and re.search(r"Failed requests: +0\n", said) and "Non-2xx" not in said
    require(right and int(re.search(r"Complete requests: +(\d+)", said)[1]) > 50, f"ab ends with {process.returncode}: {said}")


# ---- Apache

APACHE = """ServerRoot {d}
ServerName unet
DefaultRuntimeDir {d}
PidFile {d}/apache.pid
ErrorLog {d}/error.log
DocumentRoot {d}/pages
User nobody
Group nogroup
LoadModule mpm_{mpm}_module /usr/lib/apache2/modules/mod_mpm_{mpm}.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
StartServers 2
MaxRequestWorkers 32
<IfModule mpm_event_module>
  ThreadsPerChild 8
</IfModule>
{listen}
"""


def apache(role):
    """A process for each connection, or threads of a few processes; both let the client close first."""
    os.chmod(role.directory, 0o755)
    role.subdirectory("pages")
    pages = {"small": os.urandom(1000), "big": os.urandom((64 if LONG else 4) * MIB + 1)}
    for name, data in pages.items():
        role.file(f"pages/{name}", data)
    for mpm in ("prefork", "event"):
        listen = "\n".join(f"Listen {bracketed(a)}:{PORT}" for _, a in each_version(role))
        path = role.file("apache.conf", APACHE.format(d=role.directory, mpm=mpm, listen=listen).encode())
        command = [shutil.which("apache2") or "/usr/sbin/apache2", "-D", "FOREGROUND", "-f", path]
        with role.server.server(*command, when=lambda: os.path.exists(role.file("apache.pid"))):
            for _, address in each_version(role):
                url = f"http://{bracketed(address)}:{PORT}"
                look_at_ab(ab_start(role, f"{url}/small", "-c", 20, "-n", 100_000 if LONG else 1500))
                if mpm == "prefork":  # the other closes idle connections when threads are short, also during the next request
                    look_at_ab(ab_start(role, f"{url}/small", "-k", "-c", 20, "-n", 100_000 if LONG else 1000))
                require(role.client.run("curl", "-sS", "-m", "300", f"{url}/big") == pages["big"], f"{mpm}: the large file came otherwise")
        wait_until(lambda: not os.path.exists(role.file("apache.pid")), f"{mpm}: apache2 does not end")


def curl(role):
    site = Nginx(role)
    small = [name for name in site.pages if name != "big.bin"]
    with site.running():
        for _, address in each_version(role):
            url = f"http://{bracketed(address)}:{PORT}"
            require(role.client.run("curl", "-sS", "-m", "300", "--http1.1", f"{url}/big.bin") == site.big, "the large file came otherwise")
            # One connection for two files, and the second half of one.
            out = role.client.text("curl", "-sS", "-m", "60", "-w", "%{num_connects} ", "-o", role.file("one"), f"{url}/9.bin",
                                   "-o", role.file("two"), f"{url}/15.bin")
            require(out.split() == ["1", "0"], f"connections for each of two files: {out}")
            compare(role, "one", site.pages["9.bin"])
            compare(role, "two", site.pages["15.bin"])
            require(role.client.run("curl", "-sS", "-m", "60", "-r", "100000-", f"{url}/15.bin") == site.pages["15.bin"][100000:], "a part")
            out_directory = role.subdirectory("parallel")
            role.client.run("curl", "-sS", "-m", "300", "-Z", "--parallel-max", "8", "--output-dir", out_directory,
                            *[word for name in small for word in ("-o", name, f"{url}/{name}")])
            for name in small:
                compare(role, f"parallel/{name}", site.pages[name])
    uploads(role)


def uploads(role):
    data = os.urandom(5 * MIB + 1)
    path = role.file("upload", data)
    for _, address in each_version(role):
        with role.server.server(*python_peer("http-uploads", address, PORT), ready="ready"):
            url = f"http://{bracketed(address)}:{PORT}/"
            for how in (["--data-binary", f"@{path}"], ["-T", path], ["-T", path, "-H", "Transfer-Encoding: chunked"]):
                out = role.client.text("curl", "-sS", "-m", "300", *how, url)
                require(out == hash_of(data), f"an upload by {how[0]} came otherwise")


def compare(role, name, data):
    with open(role.file(name), "rb") as file:
        came = file.read()
    require(came == data, f"{name}: {len(came)} bytes came, {len(data)} went; not the same")


# ---- redis


def redis(role):
    addresses = [a for _, a in each_version(role)]
    command = ["redis-server", "--bind", *addresses, "--port", PORT, "--save", "", "--appendonly", "no", "--protected-mode", "no",
               "--dir", role.directory]
    with role.server.server(*command, ready="Ready to accept connections"):
        for address in addresses:
            def cli(*words, data=b"", host=address):
                return role.client.run("redis-cli", "-h", host, "-p", PORT, *words, data=data)

            value = os.urandom(3 * MIB)
            require(cli("ping") == b"PONG\n", "no PONG")
            require(cli("-x", "set", "big", data=value) == b"OK\n", "a big value is not taken")
            require(cli("get", "big") == value + b"\n", "a big value came back otherwise")
            commands = b"".join(b"SET n%d v%d\r\nINCR sum\r\n" % (i, i) for i in range(5000))
            require(b"errors: 0, replies: 10000" in cli("--pipe", data=commands), "what was sent in a pipe")
            require(cli("get", "sum") == b"5000\n" and cli("get", "n4999") == b"v4999\n", "the sum of what was sent in a pipe")
            cli("flushall")
            benchmark(role, address, "-c", "50", "-n", 100_000 if LONG else 5000)
            benchmark(role, address, "-c", "50", "-n", 1_000_000 if LONG else 20_000, "-P", "16")
            benchmark(role, address, "-c", "1", "-n", 20_000 if LONG else 1000)
            require(cli("flushall") == b"OK\n", "after the benchmarks")


def benchmark(role, address, *options):
    out = role.client.text("redis-benchmark", "-h", address, "-p", PORT, "-t", "set,get,lpush,mset", "--csv", *options)
    rates = {name: float(rate) for name, rate in re.findall(r'^"(\w+)[^"]*","([\d.]+)"', out, re.M)}
    right = set(rates) >= {"SET", "GET", "LPUSH", "MSET"} and min(rates.values()) > 0 and "rror" not in out
    require(right, f"redis-benchmark {options}: {out}")


# ---- memcached


def memcached(role):
    for _, address in each_version(role):
        command = ["memcached", "-u", "root", "-l", address, "-p", PORT, "-U", PORT, "-t", "4", "-v"]

        def answers(to=address):
            try:
                return role.client.text(*python_peer("memcached-clients", to, PORT, 0, 0)) != ""
            except Failure:
                return False

        with role.server.server(*command, when=answers):
            threads, count = 8, 2000 if LONG else 60
            out = role.client.text(*python_peer("memcached-clients", address, PORT, threads, count))
            require(out == f"{threads} threads, counted {threads * count}\n", f"what the clients say: {out}")


# ---- sockperf


def sockperf(role):
    """One server waits for all its sockets by epoll; its clients, one for each socket, run at the same time."""
    address = role.addresses[4]
    kinds = (["pp", "-m", "64"], ["pp", "-m", "1400"], ["ul", "-m", "64", "--mps", "2000", "--reply-every", "10"])
    clients = [(protocol, how) for protocol in "TU" for how in kinds]
    feed = role.file("feed", "".join(f"{protocol}:{address}:{PORT + i}\n" for i, (protocol, _) in enumerate(clients)).encode())
    with role.server.server("sockperf", "sr", "-f", feed, "-F", "e", ready=r"\[tid \d+\] using"):
        for seconds in [20] if LONG else [1, 10]:
            said = sockperf_clients(role, [[*how, "-i", address, "-p", PORT + i, *["--tcp"] * (protocol == "T")]
                                           for i, (protocol, how) in enumerate(clients)], seconds)
            # sockperf counts only the middle of a second, in which a busy machine may not let a client run.
            if not any("No valid observations" in text for _, text in said):
                break
        for command, text in said:
            what = f"{command}: {text[-2000:]}"
            lost = re.search(r"# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)", text)
            require(lost is not None and ("--tcp" not in command or lost.groups() == ("0", "0", "0")), what)
            require(int(re.findall(r"ReceivedMessages=(\d+)", text)[-1]) > 10, what)


def sockperf_clients(role, arguments, seconds):
    """All at once: a list of (command, its output)."""
    commands = [["sockperf", *each, "-t", seconds] for each in arguments]
    running = [role.client.start(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for command in commands]
    said = []
    for command, process in zip(commands, running):
        try:
            text = process.communicate(timeout=WAIT)[0].decode(errors="replace")
        finally:
            end(process, signal.SIGKILL)
        require(process.returncode == 0, f"ended with {process.returncode}: {command}: {text[-2000:]}")
        said.append((command, text))
    return said


# ---- Python


def asyncio(role):
    for _, address in each_version(role):
        with role.server.server(*python_peer("asyncio-server", address, PORT), ready="ready"):
            out = role.client.text(*python_peer("asyncio-clients", address, PORT, MIB if LONG else 50_000))
            require(out == "100 streams, 4 datagrams\n", f"what came back: {out}")


def http_server(role):
    data = os.urandom((64 if LONG else 4) * MIB + 1)
    role.subdirectory("pages")
    role.file("pages/file", data)
    fetch = "import sys, urllib.request\nsys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=100).read())"
    for _, address in each_version(role):
        command = [sys.executable, "-u", "-m", "http.server", PORT, "--bind", address, "--directory", role.file("pages")]
        with role.server.server(*command, ready="Serving HTTP on"):
            url = f"http://{bracketed(address)}:{PORT}/file"
            for _ in range(3):
                require(role.client.run(sys.executable, "-c", fetch, url) == data, "the file came otherwise")
            if shutil.which("curl"):
                require(role.client.run("curl", "-sS", "-m", "100", url) == data, "the file came otherwise by curl")


# ---- socat and nc


def socat(role):
    data = os.urandom((256 if LONG else 8) * MIB + 321)
    path = role.file("data", data)
    for v, address in each_version(role):
        where = f"{bracketed(address)}:{PORT}"
        listen = f"TCP{v}-LISTEN:{PORT},bind={bracketed(address)},reuseaddr,fork"
        with role.server.server("socat", "-d", "-d", listen, "EXEC:cat", ready="listening on"):
            files = [f"FILE:{path}!!CREATE:{role.file(f'back{i}')}" for i in range(4)]
            clients = [role.client.start("socat", "-t", "60", "-T", "100", f"TCP{v}:{where}", each) for each in files]
            try:
                for i, client in enumerate(clients):
                    require(client.wait(WAIT * 5 if LONG else WAIT) == 0, f"socat's client {i} ends with {client.returncode}")
                    compare(role, f"back{i}", data)
            finally:
                for client in clients:
                    end(client, signal.SIGKILL)
        with role.server.server("socat", "-d", "-d", f"UDP{v}-RECVFROM:{PORT},bind={bracketed(address)},fork", "EXEC:tr a-z A-Z",
                                ready="receiving on|accepting|successfully"):
            require(any(role.client.run("socat", "-t", "1", "-", f"UDP{v}:{where}", data=b"some words") == b"SOME WORDS" for _ in range(5)),
                    "what came back of a datagram")


def netcat(role):
    data = os.urandom((256 if LONG else 8) * MIB + 321)
    sends, takes = f'exec nc -N "$@" < {role.file("data", data)}', f'exec nc "$@" > {role.file("came")} < /dev/null'
    for v, address in each_version(role):
        for of_server, of_client in ((takes, sends), (sends, takes)):
            with open(role.file("said"), "wb") as said:
                server = role.server.start("sh", "-c", of_server, "sh", f"-{v}", "-n", "-v", "-l", address, PORT, stderr=said)
            try:
                wait_until(lambda: os.path.getsize(role.file("said")) > 0, "nc does not listen")
                role.client.run("sh", "-c", of_client, "sh", f"-{v}", "-n", address, PORT)
                require(server.wait(WAIT) == 0, f"nc's server ends with {server.returncode}")
            finally:
                end(server, signal.SIGKILL)
            compare(role, "came", data)
        netcat_datagrams(role, v, address)


def netcat_datagrams(role, v, address):
    """The server connects its datagram socket to its first client. Neither closes its input: after that nc would receive no more."""
    words, answer = os.urandom(1000), os.urandom(900)
    with open(role.file("said"), "wb") as said, open(role.file("came"), "wb") as came, open(role.file("back"), "wb") as back:
        server = role.server.start("nc", f"-{v}", "-u", "-n", "-v", "-l", address, PORT, stdin=subprocess.PIPE, stdout=came, stderr=said)
        with server.stdin:
            try:
                server.stdin.write(answer)
                server.stdin.flush()
                wait_until(lambda: os.path.getsize(role.file("said")) > 0, "nc does not listen")
                client = role.client.start("nc", f"-{v}", "-u", "-n", "-W", "1", address, PORT, stdin=subprocess.PIPE, stdout=back)
                with client.stdin:
                    try:
                        client.stdin.write(words)
                        client.stdin.flush()
                        require(client.wait(WAIT) == 0, f"nc's client of datagrams ends with {client.returncode}")
                    finally:
                        end(client, signal.SIGKILL)
                wait_until(lambda: os.path.getsize(role.file("came")) == len(words), "a datagram did not come to nc's server")
            finally:
                end(server, signal.SIGKILL)
    compare(role, "came", words)
    compare(role, "back", answer)


TALKS = """exec 3<>"/dev/tcp/$0/$1"
echo some words >&3 && printf '%s %d\n' 'and more' 7 >&3
read -r first <&3 && read -r second <&3
echo "$first, $second"
"""


def bash(role):
    """bash's builtins write through a stdio stream, with the socket at 1 meanwhile."""
    for v, address in each_version(role):
        where = f"{PORT},bind={bracketed(address)}"
        with role.server.server("socat", "-d", "-d", f"TCP{v}-LISTEN:{where},reuseaddr,fork", "EXEC:cat", ready="listening on"):
            said = role.client.text("bash", "-c", TALKS, address, PORT)
            require(said == "some words, and more 7\n", f"what came back: {said}")
        with role.server.server("socat", "-d", "-d", "-u", f"UDP{v}-RECV:{where}", "STDOUT", ready="starting data transfer") as server:
            role.client.run("bash", "-c", 'echo some words >"/dev/udp/$0/$1"', address, PORT)
            wait_until(lambda: "some words\n" in server.said(), "the datagram did not come")


def tftp(role):
    """A child for each file, with a socket of its own, after chroot() and as another user."""
    data = os.urandom(300_000)
    os.chmod(role.directory, 0o755)
    root = role.subdirectory("files")
    role.file("files/data", data)
    for v, address in each_version(role):
        where = f"{bracketed(address)}:{PORT}"
        with role.server.server("/usr/sbin/in.tftpd", "-L", f"-{v}", "-a", where, "-s", root, "-P", role.file(f"tftpd{v}.pid"), "-u", "nobody",
                                when=lambda v=v: os.path.exists(role.file(f"tftpd{v}.pid"))):
            role.client.run("tftp", f"-{v}", "-m", "binary", address, PORT, "-c", "get", "data", role.file("came"))
            compare(role, "came", data)


def marks(role):
    for _, address in each_version(role):
        with role.server.server(*python_peer("marks-server", address, PORT), ready="ready"):
            for hops, traffic_class in ((33, 0x29), (64, 0), (255, 0xFF)):
                told = role.client.text(*python_peer("marks-client", address, PORT, hops, traffic_class)).strip()
                wanted = f"{hops} {traffic_class} {address} from {address} by 41 42"
                require(told == wanted, f"what was told is {told}, not {wanted}")


PROGRAMS = {  # each test, with the programs and Python modules that it needs
    "iperf3": (iperf3, ["iperf3"]),
    "nginx": (nginx, ["nginx", "wrk", "curl", "ab"]),
    "apache": (apache, ["apache2", "ab", "curl"]),
    "curl": (curl, ["nginx", "curl"]),
    "redis": (redis, ["redis-server", "redis-cli", "redis-benchmark"]),
    "memcached": (memcached, ["memcached"]),
    "sockperf": (sockperf, ["sockperf"]),
    "asyncio": (asyncio, []),
    "http_server": (http_server, []),
    "socat": (socat, ["socat"]),
    "netcat": (netcat, ["nc"]),
    "bash": (bash, ["bash", "socat"]),
    "tftp": (tftp, ["in.tftpd", "tftp"]),
    "marks": (marks, []),
    "node": (program_loops.node, ["node"]),
    "dig": (program_loops.dig, ["dig", "dnsmasq"]),
    "postgres": (program_postgres.postgres, [program_postgres.PGBENCH]),
    "uvicorn": (program_loops.uvicorn, [], ["uvicorn", "uvloop", "h11"]),
    "aiohttp": (program_loops.aiohttp, [], ["aiohttp"]),
    "granian": (program_loops.granian, [], ["granian", "uvloop"]),
}


USERS = {"postgres": NOBODY}  # the server's user, if not root
# Single processes, one at a time: these may embed the NI.
ALONE = {"iperf3": ["server", "client"], "memcached": ["server", "client"], "sockperf": ["server"]}


def main(name, unetd, sockets, embedded):
    test, programs, *modules = PROGRAMS[name]
    unknown = [each for each in sum(modules, []) if importlib.util.find_spec(each) is None]
    if unknown:
        print(f"skipped: {sys.executable} has no {', '.join(unknown)} (pip install {' '.join(unknown)})")
        return 77
    missing = [PACKAGES.get(each, each) for each in programs if not shutil.which(each, path=os.environ["PATH"] + ":/usr/sbin")]
    if missing or not can_be_made():
        print(f"skipped: needs {'the packages ' + ', '.join(missing) if missing else 'root and network namespaces'}")
        return 77
    if name in USERS and not others_may_run(*filter(os.path.exists, [sockets])):
        print(f"skipped: needs a build that user {USERS[name]} may run")
        return 77
    if not os.path.exists(sockets):
        print(f"      no {sockets}: between kernels only")

    def in_role(make):
        with make() as role:
            test(role)

    results = [attempt(f"{name}, {role}", lambda make=make: in_role(make))
               for role, make in roles(unetd, sockets, embedded, ALONE.get(name, []), USERS.get(name))]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(os.path.abspath, sys.argv[2:5])))
