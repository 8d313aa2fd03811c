# test_splitc.py - Split-C: jobs of several ranks; their arrays are numpy views.
import os
import subprocess
import sys
import tempfile
import unittest

from unet import splitc

HANG = 60

ARRAYS = """
def program():
    me, count = splitc.rank(), splitc.ranks()
    after = (me + 1) % count
    numbers = splitc.Array(1000)
    assert numbers.local.sum() == 0
    numbers.local[:] = numpy.arange(1000) + me
    splitc.barrier()
    assert (numbers[after, 10:20] == numpy.arange(10, 20) + after).all()
    assert numbers[after, -1] == 999 + after
    splitc.barrier()
    numbers[after, 3] = 7
    numbers.put((after, slice(10, 20)), range(10))
    into = numpy.empty(500)
    numbers.get((after, slice(500, 1000)), into)
    splitc.sync()
    assert into[0] == 500 + after
    splitc.barrier()
    assert numbers.local[3] == 7 and numbers.local[10:20].tolist() == list(range(10))
    words = splitc.Array(4, "int32")
    words.store((after, slice(0, 2)), [me, -1])
    splitc.all_store_sync()
    assert words.local.tolist() == [(me - 1) % count, -1, 0, 0]
    assert splitc.reduce(me) == sum(range(count)) and splitc.reduce(me + 0.5, "max") == count - 0.5
    assert splitc.scan(1) == me + 1 and splitc.broadcast(float(me)) == 0.0
    for wrong, place in ((IndexError, (count, 0)), (IndexError, (0, 1000)), (IndexError, (0, slice(0, 9, 2)))):
        try:
            numbers[place]
        except wrong:
            continue
        raise AssertionError(place)
    part = words.local[1:]
    try:
        words.free()
    except BufferError:
        del part
    words.free()
    return me

result = splitc.run(program)
print(f"rank {result}")
"""


class SplitC(unittest.TestCase):
    def job(self, program, ranks=3, status=0, **variables):
        """Runs a job; returns what it prints."""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write("import numpy\nfrom unet import splitc\n" + program)
            file.flush()
            done = subprocess.run([os.environ["UNET_RUN"], "-n", str(ranks), "--", sys.executable, file.name], text=True,
                                  capture_output=True, timeout=HANG, check=False, env={**os.environ, "PYTHONUNBUFFERED": "", **variables})
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr

    def test_arrays(self):
        for path in ("direct", "messages"):
            with self.subTest(path):
                self.assertEqual(sorted(self.job(ARRAYS, UNET_SPLITC_PATH=path).split("\n")), ["", "rank 0", "rank 1", "rank 2"])

    def test_an_exception_ends_the_job(self):
        said = self.job("""
def program():
    numbers = splitc.Array(10)
    mine = numbers.local
    if splitc.rank() == 1:
        raise KeyError("broken")
    splitc.barrier()
splitc.run(program)
""", status=1)
        self.assertIn("KeyError: 'broken'", said)

    def test_views_do_not_outlive_the_job(self):
        said = self.job("splitc.run(lambda: splitc.Array(10).local)", ranks=1, status=1)
        self.assertIn("views of spread memory are in use after the program", said)
        self.job("import sys\nsplitc.run(lambda: sys.exit(3))", ranks=1, status=3)

    def test_only_the_program_may_call(self):
        with self.assertRaises(RuntimeError):
            splitc.barrier()
        self.assertIn("unset UNET_SPLITC_MACHINE", self.job("splitc.run(print)", ranks=1, status=1, UNET_SPLITC_MACHINE="any"))
        self.job("""
import threading
def program():
    errors = []
    def other():
        try:
            splitc.rank()
        except RuntimeError as error:
            errors.append(error)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(errors) == 1
splitc.run(program)
""", ranks=1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
