#!/usr/bin/env python3
"""Serve a device by aiokatcp, on a free port of this host, until a client asks for ?halt.

usage: serve.py bench|dish

Prints the address. Fails if the dish was not turned, or was not watched.
"""

import asyncio
import enum
import signal
import sys

import aiokatcp


class Mode(enum.Enum):
    STOW = 0
    TRACK = 1


class Bench(aiokatcp.DeviceServer):
    VERSION = "bench-1.0"
    BUILD_STATE = "bench-1.0.3"

    def __init__(self):
        super().__init__("127.0.0.1", 0)
        self.released = asyncio.Event()

        def add(kind, name, units, default, *reading):
            sensor = aiokatcp.Sensor(kind, name, f"A {name}.", units, default, aiokatcp.Sensor.Status.NOMINAL)
            if reading:
                sensor.set_value(*reading)
            self.sensors.add(sensor)

        add(int, "count", "", 0)
        add(bool, "is-on", "", True)
        add(bytes, "label.x", "", b"two \\ words\n")
        add(Mode, "mode", "", Mode.TRACK)
        add(float, "power", "dBFS", 0.0, -20.5, aiokatcp.Sensor.Status.WARN, 1.5e9)
        add(aiokatcp.Timestamp, "since", "s", aiokatcp.Timestamp(1.5e9))

    async def request_echo(self, ctx, *arguments: bytes) -> tuple:
        """Reply with the arguments."""
        return arguments

    async def request_list(self, ctx, count: int) -> int:
        """Send so many informs."""
        for k in range(count):
            ctx.inform(k, f"line {k}")
        return count

    async def request_refuse(self, ctx, why: str) -> None:
        """Fail."""
        raise aiokatcp.FailReply(why)

    async def request_hold(self, ctx, what: str) -> str:
        """Reply after ?release."""
        await self.released.wait()
        return what

    async def request_release(self, ctx) -> None:
        """Let ?hold reply."""
        self.released.set()

    async def request_set(self, ctx, name: str, value: int) -> None:
        """Set a sensor."""
        self.sensors[name].value = value


class Dish(aiokatcp.DeviceServer):
    VERSION = "dish-1.0"
    BUILD_STATE = "dish-1.0.0"

    def __init__(self):
        super().__init__("127.0.0.1", 0)
        self.azimuth = aiokatcp.Sensor(float, "azimuth", "Direction of the dish", "deg", 0.0)
        self.sensors.add(self.azimuth)
        self.turned = []
        self.watched = False

    async def request_turn(self, ctx, degrees: float) -> None:
        """Turn the dish."""
        self.watched = ctx.conn.get_sampler(self.azimuth) is not None
        self.turned.append(degrees)
        self.azimuth.value = degrees


async def main(device):
    server = {"bench": Bench, "dish": Dish}[device]()
    await server.start()
    host, port = server.sockets[0].getsockname()
    print(f"{host}:{port}", flush=True)
    await server.join()
    if device == "dish":
        assert server.turned == [12.5] and server.watched, (server.turned, server.watched)


if __name__ == "__main__":
    # Whoever does not answer fails the test.
    signal.alarm(300)
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1]))
