#!/usr/bin/env python3
"""Do to an F-engine's control what no client should, while one that behaves goes on.

usage: hostile_katcp.py HOST PORT STREAM CHANNELS PID DEED…

PID is the server's process. Deeds are many, endless, deaf and subscribed; the last needs many channels. Prints how many clients
could connect, and by how many bytes the server grew in the course of each deed, as JSON. Fails if the client that behaves
is not served.
"""

import asyncio
import json
import resource
import signal
import sys

import aiokatcp

TIMEOUT = 120


async def connect(host, port):
    """A connection of which nothing but the greeting is read, unless somebody does."""
    reader, writer = await asyncio.open_connection(host, port)
    greeting = await asyncio.wait_for(reader.readline(), TIMEOUT)
    return reader, writer, greeting


async def close(connections):
    for _, writer, _ in connections:
        writer.transport.abort()
    await asyncio.sleep(0)


async def gone(good, most):
    """Waits until the server has at most so many clients."""

    async def wait():
        while int((await good.request("client-list"))[0][0]) > most:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), TIMEOUT)


async def many(host, port, good, _stream, _channels):
    """More connections than there may be, of which none asks for anything: others make room, not the one that behaves."""
    await good.request("watchdog")
    connections = []
    for _ in range(1100):
        connections.append(await connect(host, port))
        # Each is told of all that come after it: a million lines that nobody needs.
        connections[-1][1].transport.pause_reading()
    assert all(greeting.startswith(b"#version-connect") for _, _, greeting in connections)
    clients = int((await good.request("client-list"))[0][0])
    await close(connections)
    await gone(good, 1)
    return clients


async def endless(host, port, good, _stream, _channels, clients=12):
    """16 MiB and more without an end of line."""

    async def one():
        reader, writer, _ = await connect(host, port)
        try:
            for _ in range(17):
                writer.write(b"x" * (1 << 20))
                await writer.drain()
        except ConnectionError:
            pass
        # The server closes: what it says before may be lost, since it did not read all.
        try:
            while await asyncio.wait_for(reader.read(1 << 16), TIMEOUT):
                pass
        except ConnectionError:
            pass
        writer.transport.abort()

    tasks = asyncio.gather(*(one() for _ in range(clients)))
    while not tasks.done():
        await good.request("watchdog")
    await tasks
    await gone(good, 1)


async def deaf(host, port, good, stream, channels, clients=120):
    """Ask for much, and read nothing."""
    gains = [f"0.{k:016d}+0.{k:016d}j" for k in range(channels)]
    await good.request("gain-all", stream, *gains)
    connections = [await connect(host, port) for _ in range(clients)]
    for _, writer, _ in connections:
        writer.write(b"?sensor-value\n" * 20)
    # All are answered once, as far as the server bears it.
    for _ in range(50):
        await good.request("watchdog")
    reply, _ = await good.request("sensor-value", "device-status")
    assert reply == [b"1"]
    await close(connections)
    await gone(good, 1)


async def subscribed(host, port, good, stream, channels, clients=20):
    """Subscribe to much, and read nothing."""
    connections = [await connect(host, port) for _ in range(clients)]
    for _, writer, _ in connections:
        writer.write(f"?sensor-sampling {stream}.input0.eq,{stream}.input1.eq auto\n".encode())
    for k in range(40):
        gains = [f"{k}.{c:015d}+0.{c:016d}j" for c in range(channels)]
        await good.request("gain-all", stream, *gains)
    # They were cut off, without anybody closing their connections.
    await gone(good, 1)
    await close(connections)


def memory(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


async def growth(pid, deed):
    """The result of a deed, and the memory that the server had more of in the course of it."""
    before = most = memory(pid)
    task = asyncio.ensure_future(deed)
    while not task.done():
        await asyncio.wait([task], timeout=0.005)
        most = max(most, memory(pid))
    return await task, most - before


DEEDS = {deed.__name__: deed for deed in (many, endless, deaf, subscribed)}


async def main(host, port, stream, channels, pid, deeds):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    good = await aiokatcp.Client.connect(host, port)
    results, grown = {}, {}
    for deed in deeds:
        results[deed], grown[deed] = await growth(pid, DEEDS[deed](host, port, good, stream, channels))
    await good.request("watchdog")
    good.close()
    print(json.dumps({"connected": results.get("many"), "grown": grown}))


if __name__ == "__main__":
    # Whoever does not answer fails the test.
    signal.alarm(300)
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    host, port, stream, channels, pid = sys.argv[1:6]
    asyncio.run(main(host, int(port), stream, int(channels), int(pid), sys.argv[6:]))
