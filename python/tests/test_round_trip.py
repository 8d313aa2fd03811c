# test_round_trip.py - round_trip.py measures every path.
import json
import os
import pathlib
import subprocess
import sys

import network


class RoundTrip(network.NetworkTest):
    def test_records(self):
        program = pathlib.Path(__file__).parent / "round_trip.py"
        done = subprocess.run([sys.executable, program, "--slices", "1", "--size", "4096", "--json"], stdout=subprocess.PIPE, check=True,
                              env={**os.environ, "UNET_NI": self.ni}, timeout=network.HANG)
        records = json.loads(done.stdout)
        self.assertEqual([(each["size"], each["median"] > 0) for each in records], [(4096, True)] * 5)


if __name__ == "__main__":
    network.main()
