# program_web.py - a web service for Python's servers, and its clients; started by program_loops.py. The service sends a file, which it
# reads anew each time, and returns the hash of posted data.
#
# Usage: uvicorn --app-dir HERE program_web:service ...      or granian, with $UNET_SERVED, the file
#        program_web.py aiohttp-server ADDRESS PORT FILE
#        program_web.py aiohttp-client ADDRESS PORT FILE     prints a line that says how many requests were right
#        program_web.py client ADDRESS PORT FILE             the same without any of these
import asyncio
import concurrent.futures
import hashlib
import http.client
import os
import sys

CLIENTS, REQUESTS = 20, 10
BODY = bytes(range(256)) * 4000


def contents(path):
    with open(path, "rb") as file:
        return file.read()


async def service(scope, receive, send):
    """An ASGI application."""
    if scope["type"] != "http":
        return
    digest = hashlib.sha256()
    more = True
    while more:
        part = await receive()
        digest.update(part.get("body", b""))
        more = part.get("more_body", False)
    body = contents(os.environ["UNET_SERVED"]) if scope["path"] == "/file" else digest.hexdigest().encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


def client(address, port, path):
    wanted = contents(path)

    def one(_):
        connection = http.client.HTTPConnection(address, port, timeout=60)
        right = 0
        for _ in range(REQUESTS):
            connection.request("GET", "/file")
            right += connection.getresponse().read() == wanted
        connection.request("POST", "/post", BODY)
        right += connection.getresponse().read() == hashlib.sha256(BODY).hexdigest().encode()
        connection.close()
        return right

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as threads:
        print(sum(threads.map(one, range(CLIENTS))))


def aiohttp_server(address, port, path):
    from aiohttp import web

    async def file(_):
        return web.FileResponse(path)

    async def post(request):
        return web.Response(text=hashlib.sha256(await request.read()).hexdigest())

    async def talk(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data + message.data)
        return socket

    app = web.Application(client_max_size=2 * len(BODY))
    app.add_routes([web.get("/file", file), web.post("/post", post), web.get("/talk", talk)])
    web.run_app(app, host=address, port=port)


async def aiohttp_client(address, port, path):
    import aiohttp
    wanted = contents(path)
    url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"

    async def one(session):
        right = 0
        for _ in range(REQUESTS):
            async with session.get(f"{url}/file") as answer:
                right += await answer.read() == wanted
        async with session.post(f"{url}/post", data=BODY) as answer:
            right += await answer.text() == hashlib.sha256(BODY).hexdigest()
        return right

    async with aiohttp.ClientSession() as session:
        right = sum(await asyncio.gather(*(one(session) for _ in range(CLIENTS))))
        async with session.ws_connect(f"{url}/talk") as socket:
            await socket.send_str("word ")
            right += await socket.receive_str() == "word word "
    print(right)


PEERS = {"client": client, "aiohttp-server": aiohttp_server,
         "aiohttp-client": lambda *args: asyncio.run(aiohttp_client(*args))}

if __name__ == "__main__":
    PEERS[sys.argv[1]](sys.argv[2], int(sys.argv[3]), sys.argv[4])
