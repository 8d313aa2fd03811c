# runtime_grpc.py - a gRPC server, and a client that makes each kind of call, also from several threads and channels; for
# sockets_runtimes.py.
#
# Usage: runtime_grpc.py serve|call ADDRESS PORT
import os
import sys
import threading
from concurrent import futures

import grpc

OPTIONS = [("grpc.max_receive_message_length", 16 << 20), ("grpc.max_send_message_length", 16 << 20)]
WITHIN = 60  # seconds


class Calls(grpc.GenericRpcHandler):
    def service(self, call):
        return {
            "/calls/echo": grpc.unary_unary_rpc_method_handler(lambda data, _: data),
            "/calls/repeat": grpc.unary_stream_rpc_method_handler(lambda data, _: (data for _ in range(20))),
            "/calls/each": grpc.stream_stream_rpc_method_handler(lambda all_, _: (data for data in all_)),
        }.get(call.method)


def serve(where):
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=(Calls(),), options=OPTIONS)
    assert server.add_insecure_port(where) != 0
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


def call(where):
    with grpc.insecure_channel(where, options=OPTIONS) as channel:
        echo = channel.unary_unary("/calls/echo")
        for size in (1, 1000, 4 << 20):
            data = os.urandom(size)
            assert echo(data, timeout=WITHIN, wait_for_ready=True) == data
        data = os.urandom(100_000)
        assert list(channel.unary_stream("/calls/repeat")(data, timeout=WITHIN)) == 20 * [data]
        assert list(channel.stream_stream("/calls/each")(iter([b"a", b"b", b"c"]), timeout=WITHIN)) == [b"a", b"b", b"c"]
    answered = []

    def several():
        with grpc.insecure_channel(where, options=OPTIONS + [("grpc.use_local_subchannel_pool", 1)]) as channel:
            echo = channel.unary_unary("/calls/echo")
            answered.append(all(echo(b"x", timeout=WITHIN, wait_for_ready=True) == b"x" for _ in range(20)))

    threads = [threading.Thread(target=several) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    print("all answered" if answered == 4 * [True] else f"answered: {answered}")


if __name__ == "__main__":
    _, what, address, port = sys.argv
    {"serve": serve, "call": call}[what](f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
