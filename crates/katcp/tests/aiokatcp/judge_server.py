#!/usr/bin/env python3
"""Drive a server of the crate katcp with aiokatcp's client.

usage: judge_server.py HOST PORT bench|example

The last word says which device the server has. Ends with ?halt. Fails at the first thing that is not as aiokatcp expects it.
"""

import asyncio
import contextlib
import random
import signal
import struct
import sys
import time

import aiokatcp

TIMEOUT = 60
SENSORS = {
    "calm": ("integer", ""),
    "count": ("integer", ""),
    "device-status": ("discrete", "", "ok", "degraded", "fail"),
    "is-on": ("boolean", ""),
    "label.x": ("string", ""),
    "mode": ("discrete", "", "stow", "track"),
    "power": ("float", "dBFS"),
    "since": ("timestamp", "s"),
}


class Listener(aiokatcp.Client):
    """A client that keeps the informs that it did not ask for."""

    def __init__(self, host, port):
        super().__init__(host, port, auto_reconnect=False)
        self.statuses = {}
        self.news = []
        self.arrived = asyncio.Condition()

    @classmethod
    async def open(cls, host, port):
        client = cls(host, port)
        await asyncio.wait_for(client.wait_connected(), TIMEOUT)
        return client

    def inform_sensor_status(self, timestamp: aiokatcp.Timestamp, count: int, *args: bytes) -> None:
        assert count == 1 and len(args) == 3
        name, status, value = (arg.decode() for arg in args)
        self.statuses.setdefault(name, []).append((time.monotonic(), float(timestamp), status, value))
        asyncio.get_running_loop().create_task(self._wake())

    def unhandled_inform(self, msg):
        self.news.append(msg)
        asyncio.get_running_loop().create_task(self._wake())

    async def _wake(self):
        async with self.arrived:
            self.arrived.notify_all()

    async def until(self, condition):
        async def wait():
            async with self.arrived:
                await self.arrived.wait_for(condition)

        await asyncio.wait_for(wait(), TIMEOUT)

    async def fails(self, name, *args):
        try:
            reply = await self.request(name, *args)
        except aiokatcp.FailReply as error:
            assert str(error) and "\n" not in str(error), str(error)
            return
        raise AssertionError(f"?{name} {args} was answered {reply}")


def text(informs):
    return [[arg.decode() for arg in inform.arguments] for inform in informs]


async def check_standard(client):
    reply, informs = await client.request("version-list")
    versions = {inform[0]: inform[1:] for inform in text(informs)}
    assert versions["katcp-protocol"] == ["5.1-MIB"] and int(reply[0]) == 3
    assert versions["katcp-device"] == ["bench-1.0", "bench-1.0.3"] and len(versions["katcp-library"]) == 2
    reply, informs = await client.request("help")
    names = [inform[0] for inform in text(informs)]
    assert names == sorted(names) and int(reply[0]) == len(names)
    assert {"echo", "slow", "halt", "sensor-sampling"} < set(names)
    for name in names:
        _, informs = await client.request("help", name)
        assert text(informs)[0][0] == name
    await client.fails("help", "nothing")
    await client.request("watchdog")
    await client.fails("watchdog", "too", "much")
    assert (await client.request("log-level"))[0] == [b"warn"]
    assert (await client.request("log-level", "info"))[0] == [b"info"]
    await client.fails("log-level", "loud")
    try:
        await client.request("no-such-request")
        raise AssertionError("no-such-request was done")
    except aiokatcp.InvalidReply as error:
        assert "unknown request no-such-request" in str(error)


async def check_arguments(client):
    everything = bytes(range(256))
    for arguments in [[], [b""], [b"", b""], [everything], [b" ", b"\\", b"\\_", b"\\@", b"\n\r\0\x1b\t"]]:
        assert (await client.request("echo", *arguments))[0] == arguments
    rng = random.Random(1)
    for _ in range(100):
        arguments = [bytes(rng.choices(b"\\ _@n\n\0a", k=rng.randrange(6))) for _ in range(rng.randrange(5))]
        assert (await client.request("echo", *arguments))[0] == arguments
    long = [b"x" * 100] * 80_000
    assert (await client.request("echo", *long))[0] == long
    reply, informs = await client.request("list", 1000)
    assert text(informs) == [[str(k), f"line {k}"] for k in range(1000)] and reply == [b"1000"]
    replies = await asyncio.gather(client.request("slow", 50), client.request("watchdog"))
    assert replies[0][0] == [b"at", b"last"]
    await client.fails("slow", "x")


async def check_numbers(client):
    """Texts are numbers exactly where Python says so, read as the same ones, and written as Python writes them."""
    texts = """1 -2.5 3j 1+2j 1e3-4e-2j (1+2j) j -j +J 1_0 1__0 _1 1_ .5 5. . e5 1e 1e+ 1e5 1E-5J (1 1) () ((1)) 1j+2
        1+2 1++2j 1+-2j inf nan infinity -inf infj nanj 1+infj 0x10 1,5 1i 1jj 1e400 1e39 1e-50 0.1+0.2j 007 +5 --5
        16777217 -0 -0j 0-0j 1.0000000596046448 9223372036854775807 9223372036854775808 99999999999999999999""".split()
    texts += [" 1", "1 ", " ( 1+2j ) ", "1 +2j", "(1)\t", "", "\u00e9"]
    rng = random.Random(2)
    texts += [repr(struct.unpack("d", rng.randbytes(8))[0]) for _ in range(100)]
    texts += [str(rng.randrange(-2**64, 2**64)) for _ in range(20)]

    def single(value):
        with contextlib.suppress(OverflowError):
            return struct.unpack("f", struct.pack("f", value))[0]
        return float("inf") if value > 0 else float("-inf")

    for sent in texts:
        for kind, read in [("integer", int), ("float", float), ("complex", complex)]:
            try:
                number = read(sent)
            except ValueError:
                number = None
            if kind == "integer" and number is not None and not -2**63 <= number < 2**63:
                number = None  # integers have 64 bits
            reply = (await client.request("number", kind, sent))[0][0].decode()
            if number is None:
                expected = "none"
            elif kind == "complex":
                expected = "{:.17g}{:+.17g}j".format(single(number.real), single(number.imag))
            else:
                expected = repr(number)
            assert reply == expected, (kind, sent, reply, expected)


async def check_sensors(client, host, port):
    reply, informs = await client.request("sensor-list")
    listed = {inform[0]: inform for inform in text(informs)}
    assert list(listed) == sorted(SENSORS) and int(reply[0]) == len(listed)
    assert {name: (one[3], one[2], *one[4:]) for name, one in listed.items()} == SENSORS
    assert listed["label.x"][1] == "A label.x."
    for pattern, count in [("/./", 8), ("/^c/", 2), ("/no such/", 0), ("mode", 1)]:
        for request in ("sensor-list", "sensor-value"):
            reply, informs = await client.request(request, pattern)
            assert int(reply[0]) == len(informs) == count, (request, pattern)
    for request in ("sensor-list", "sensor-value"):
        await client.fails(request, "/(/")
        try:
            await client.request(request, "no-such-sensor")
            raise AssertionError("no-such-sensor is there")
        except aiokatcp.FailReply as error:
            assert str(error).startswith("Unknown sensor"), error
    _, informs = await client.request("sensor-value", "power")
    assert text(informs) == [["1500000000.0", "1", "power", "warn", "-20.5"]]

    # aiokatcp's own idea of a controller: it mirrors all sensors by their types.
    other = aiokatcp.Client(host, port)
    watcher = aiokatcp.SensorWatcher(other)
    other.add_sensor_watcher(watcher)
    await asyncio.wait_for(watcher.synced.wait(), TIMEOUT)
    assert set(watcher.sensors) == set(SENSORS)
    count = watcher.sensors["count"]
    before = count.value
    moved = asyncio.Event()
    count.attach(lambda _sensor, reading: moved.set() if reading.value > before else None)
    await asyncio.wait_for(moved.wait(), TIMEOUT)
    values = {name: watcher.sensors[name].value for name in ("power", "is-on", "label.x")}
    assert values == {"power": -20.5, "is-on": True, "label.x": b"two \\ words\n"}, values
    assert watcher.sensors["since"].value == 1.5e9
    assert watcher.sensors["mode"].value.value == b"track"
    assert watcher.sensors["device-status"].value.value == b"degraded"
    assert watcher.sensors["power"].status == aiokatcp.Sensor.Status.WARN
    other.close()
    await other.wait_closed()


async def sample(host, port, name, count, *strategy):
    """The first `count` reports of a new subscription, and when it was asked for."""
    client = await Listener.open(host, port)
    start = time.monotonic()
    reply, _ = await client.request("sensor-sampling", name, *strategy)
    assert [part.decode() for part in reply[:2]] == [name, str(strategy[0])], reply
    # The first report comes before the reply.
    assert name in client.statuses
    queried, _ = await client.request("sensor-sampling", name)
    assert queried == reply, (queried, reply)
    await client.until(lambda: len(client.statuses[name]) >= count)
    await client.request("sensor-sampling", name, "none")
    reply, _ = await client.request("sensor-sampling", name)
    assert reply == [name.encode(), b"none"]
    quiet = len(client.statuses[name])
    await client.request("watchdog")
    assert len(client.statuses[name]) == quiet
    client.close()
    await client.wait_closed()
    return start, client.statuses[name]


async def check_sampling(client, host, port):
    def numbers(reports):
        return [int(report[3]) for report in reports]

    def steps(reports):
        return [b - a for a, b in zip(numbers(reports), numbers(reports)[1:])]

    def spaced(start, reports, seconds):
        return all(report[0] - start >= k * seconds for k, report in enumerate(reports))

    for strategy in [("event",), ("auto",)]:
        _, reports = await sample(host, port, "count", 5, *strategy)
        assert all(step == 1 for step in steps(reports)), reports
    start, reports = await sample(host, port, "calm", 3, "auto")
    assert spaced(start, reports, 1.0) and all(step > 1 for step in steps(reports)), reports
    start, reports = await sample(host, port, "count", 5, "period", 0.07)
    assert spaced(start, reports, 0.07), reports
    _, reports = await sample(host, port, "count", 4, "differential", 3)
    assert all(step > 3 for step in steps(reports)), reports
    start, reports = await sample(host, port, "count", 4, "event-rate", 0.2, 10)
    assert spaced(start, reports, 0.2), reports
    start, reports = await sample(host, port, "count", 4, "differential-rate", 3, 0.1, 1000)
    assert spaced(start, reports, 0.1) and all(step > 3 for step in steps(reports)), reports
    # A sensor that never changes is reported all the same.
    start, reports = await sample(host, port, "mode", 3, "event-rate", 0, 0.1)
    assert spaced(start, reports, 0.1), reports

    for arguments in [
        ("no-such-sensor",),
        ("no-such-sensor", "auto"),
        ("count,count", "auto"),
        ("count,no-such-sensor", "auto"),
        ("count", "often"),
        ("count", "period"),
        ("count", "period", 0),
        ("count", "period", "nan"),
        ("count", "event-rate", 1),
        ("count", "differential", "x"),
        ("mode", "differential", 1),
    ]:
        await client.fails("sensor-sampling", *arguments)
    reply, _ = await client.request("sensor-sampling", "mode,device-status", "auto")
    assert reply == [b"mode,device-status", b"auto"]
    assert set(client.statuses) == {"mode", "device-status"}
    await client.request("sensor-sampling", "mode,device-status", "none")


async def check_malformed(host, port):
    """What aiokatcp would never send."""
    reader, writer = await asyncio.open_connection(host, port)
    for _ in range(3):
        assert (await reader.readline()).startswith(b"#version-connect ")
    malformed = [b"hello", b"?", b"?1", b"?a[0]", b"?a[1", rb"?watchdog \q", b"?watchdog x\\", b"?a_b", b"?w\0", b"\xff"]
    writer.write(b"\n \t\n\r\n!watchdog ok\n#watchdog\n" + b"\n".join(malformed) + b"\n?watchdog[5]\r")
    for line in malformed:
        log = await asyncio.wait_for(reader.readline(), TIMEOUT)
        assert log.startswith(b"#log error "), (line, log)
        assert abs(float(log.split()[2]) - time.time()) < 3600
    assert await asyncio.wait_for(reader.readline(), TIMEOUT) == b"!watchdog[5] ok\n"
    # The client's half of the connection is enough to end it.
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), TIMEOUT) == b""
    writer.close()


async def check_many(host, port, clients):
    opened = [await Listener.open(host, port) for _ in range(clients)]

    async def work(index, client):
        for k in range(20):
            reply, informs = await client.request("sensor-value", "/./")
            assert int(reply[0]) == len(informs)
            assert (await client.request("echo", index, k))[0] == [str(index).encode(), str(k).encode()]
            if index % 4 == 1 and k == 10:
                # Gone in the middle of a request.
                with_reply = asyncio.ensure_future(client.request("help"))
                await asyncio.sleep(0)
                client.close()
                with_reply.cancel()
                return

    await asyncio.wait_for(asyncio.gather(*(work(i, c) for i, c in enumerate(opened))), TIMEOUT)
    assert any(news.name == "client-connected" for news in opened[0].news)
    left = [client for i, client in enumerate(opened) if i % 4 != 1]
    _, informs = await left[0].request("client-list")
    addresses = [inform[0] for inform in text(informs)]
    assert len(addresses) == len(set(addresses)) >= len(left)
    for client in left:
        await client.request("watchdog")
        client.close()
        await client.wait_closed()


async def check_bench(client, host, port):
    await check_standard(client)
    await check_arguments(client)
    await check_numbers(client)
    await check_sensors(client, host, port)
    await check_sampling(client, host, port)
    await check_malformed(host, port)
    await check_many(host, port, 24)


async def check_example(client, host, port):
    await client.request("sensor-sampling", "azimuth", "event")
    await client.request("turn", 12.5)
    await client.until(lambda: len(client.statuses["azimuth"]) == 2)
    assert [status[3] for status in client.statuses["azimuth"]] == ["0.0", "12.5"]
    await client.fails("turn", "north")
    await client.fails("turn", 1, 2)
    await client.fails("turn")


async def main(host, port, part):
    client = await Listener.open(host, port)
    await {"bench": check_bench, "example": check_example}[part](client, host, port)
    reply, informs = await client.request("halt")
    assert reply == [] and informs == []
    await asyncio.wait_for(client.wait_disconnected(), TIMEOUT)
    print(f"aiokatcp {aiokatcp.__version__}")


if __name__ == "__main__":
    # Whoever does not answer fails the test.
    signal.alarm(300)
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
