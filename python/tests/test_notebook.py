# test_notebook.py - runs the cells of the example notebook, as Jupyter does. Jupyter itself would be a hundred packages.
import json
import os
import pathlib
import unittest

import network

NOTEBOOK = pathlib.Path(__file__).parent.parent / "examples" / "round_trip.ipynb"


class Notebook(network.NetworkTest):
    def test_cells(self):
        try:
            import matplotlib
        except ImportError:
            raise unittest.SkipTest("matplotlib is not installed") from None
        matplotlib.use("Agg")
        cores = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cores)
        os.environ["UNET_NI"] = self.ni
        names = {"__name__": "__main__"}
        notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
        self.assertEqual((notebook["nbformat"], notebook["nbformat_minor"]), (4, 5))
        for number, cell in enumerate(notebook["cells"]):
            if cell["cell_type"] == "code":
                self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None), "commit it without results")
                exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}, cell {number}", "exec"), names)
        self.assertEqual({len(medians) for medians in names["microseconds"].values()}, {len(names["sizes"])})
        lines = names["axes"].get_lines()
        self.assertEqual([line.get_label() for line in lines], ["multiprocessing.Pipe", "U-Net"])
        self.assertLess(names["microseconds"]["U-Net"][0], names["microseconds"]["multiprocessing.Pipe"][0] * 2)


if __name__ == "__main__":
    network.main()
