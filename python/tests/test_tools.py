# test_tools.py - what unetctl and unet-bench know, as records.
import subprocess
import sys

import network
import unet
from unet import tools


SERVER = """
import socket
listener = socket.create_server(("10.9.0.1", 7000))
print("listens", flush=True)
input()
"""


class Tools(network.NetworkTest):
    unetd_options = ("--port", "nowhere", "--ip", "0=10.9.0.1/24")

    def test_unetctl(self):
        endpoint = self.endpoint("tools")
        names = tools.unetctl("names", ni=self.ni)
        self.assertEqual([(each.name, each["endpoint"]) for each in names], [("tools", endpoint.id)])
        self.assertEqual(tools.unetctl("all", ni=self.ni).host, "alpha")
        self.assertIn("engine", tools.unetctl("stats", ni=self.ni).counters)
        with self.assertRaises(AttributeError):
            names[0].absent
        with self.assertRaises(unet.UnetError) as raised:
            tools.unetctl("names", ni="unix:/nowhere/socket")
        self.assertIn("/nowhere/socket", str(raised.exception))

    def test_sockets(self):
        self.assertEqual((tools.sockets(ni=self.ni), tools.socket_counters(self.ni)), ([], []))
        command = ["unet-sockets", "--ni", self.ni, sys.executable, "-c", SERVER]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            self.assertEqual(server.stdout.readline(), "listens\n")
            records = tools.sockets("sport", "=", ":7000", ni=self.ni)
            self.assertEqual([(each.local, each.state, each.pid) for each in records], [("10.9.0.1", "LISTEN", server.pid)])
            self.assertEqual([each.pid for each in tools.socket_counters(self.ni)], [server.pid])
            server.communicate("\n")
        self.assertEqual(server.returncode, 0)

    def test_unet_bench(self):
        records = tools.bench("rtt", "--path", "local", "--size", "8", "--seconds", "0.05", "--repeat", "1")
        self.assertEqual({(each.bench, each.size, each.unit) for each in records if each.path == "local"}, {("rtt", 8, "ns")})


if __name__ == "__main__":
    network.main()
