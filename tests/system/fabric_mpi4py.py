# fabric_mpi4py.py - Python's MPI: objects, arrays, a collective and one-sided words; for fabric_mpi.py, which starts it as ranks.
import mpi4py.MPI as mpi

world = mpi.COMM_WORLD
rank, size = world.rank, world.size
after, before = (rank + 1) % size, (rank - 1) % size

received = world.sendrecv({"rank": rank, "text": "x" * 50_000}, dest=after, source=before)
assert received == {"rank": before, "text": "x" * 50_000}

out, into = bytearray([rank] * 1_000_000), bytearray(1_000_000)
world.Sendrecv(out, dest=after, recvbuf=into, source=before)
assert into == bytearray([before] * 1_000_000)

assert world.allreduce(rank) == size * (size - 1) // 2
assert world.allgather(str(rank)) == [str(each) for each in range(size)]

if rank == 0:
    print("ok")
