#!/usr/bin/env python3
"""Drive an F-engine's control with aiokatcp, as a controller would.

usage: check_aiokatcp.py HOST PORT SYNC_TIME ADC_SAMPLE_RATE STREAM=CHANNELS…

The engine has these outputs, of whatever kind. Ends with ?halt, and prints what was done as JSON. Fails at the first thing that is
not as katgpucbf has it. The tests of crates/katcp are about the protocol itself, such as sampling and malformed lines.
"""

import ast
import asyncio
import json
import math
import re
import signal
import sys
import time

import aiokatcp
import numpy as np

TIMEOUT = 60
INPUT_SENSORS = {
    "dig-clip-cnt": ("integer", ""),
    "dig-rms-dbfs": ("float", "dBFS"),
    "rx.timestamp": ("integer", ""),
    "rx.unixtime": ("timestamp", ""),
    "rx.missing-unixtime": ("timestamp", ""),
}
OUTPUT_SENSORS = {"eq": ("string", ""), "delay": ("string", ""), "feng-clip-cnt": ("integer", "")}
SENSORS = {
    "steady-state-timestamp": ("integer", ""),
    "device-status": ("discrete", ""),
    "rx.device-status": ("discrete", ""),
    "time.esterror": ("float", "s"),
    "time.maxerror": ("float", "s"),
    "time.state": ("discrete", ""),
    "time.synchronised": ("boolean", ""),
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

    async def fails(self, name, *args, match=""):
        try:
            reply = await self.request(name, *args)
        except aiokatcp.FailReply as error:
            text = str(error)
            assert re.search(match, text), (name, args, text)
            assert "Traceback" not in text and "\n" not in text, text
            return
        raise AssertionError(f"?{name} {args} was answered {reply}")


def text(informs):
    return [[arg.decode() for arg in inform.arguments] for inform in informs]


async def values(client, name):
    reply, informs = await client.request("sensor-value", name)
    assert int(reply[0]) == len(informs)
    return {inform[2]: inform for inform in text(informs)}


async def value(client, name):
    return (await values(client, name))[name][4]


async def check_standard(client, stream):
    reply, informs = await client.request("version-list")
    versions = {inform[0]: inform[1:] for inform in text(informs)}
    assert versions["katcp-protocol"] == ["5.1-MIB"]
    assert versions["katcp-device"][0] == "katgpucbf-fgpu-1.0"
    assert len(versions["katcp-library"]) == 2 and int(reply[0]) == 3

    reply, informs = await client.request("help")
    names = [inform[0] for inform in text(informs)]
    assert names == sorted(names) and int(reply[0]) == len(names)
    assert {"gain", "gain-all", "delays", "halt", "sensor-sampling"} < set(names)
    for name in names:
        _, informs = await client.request("help", name)
        assert text(informs)[0][0] == name
    await client.fails("help", "nothing", match="not known")
    await client.request("watchdog")
    assert (await client.request("log-level"))[0] == [b"warn"]
    assert (await client.request("log-level", "info"))[0] == [b"info"]
    await client.fails("log-level", "loud")
    try:
        await client.request("no-such-request")
        raise AssertionError("no-such-request was done")
    except aiokatcp.InvalidReply as error:
        assert "unknown request no-such-request" in str(error)
    await client.fails("watchdog", "too", "much")
    await client.fails("gain")


async def check_sensors(client, streams):
    expected = dict(SENSORS)
    for pol in range(2):
        expected.update({f"input{pol}.{name}": kind for name, kind in INPUT_SENSORS.items()})
        for stream in streams:
            expected.update({f"{stream}.input{pol}.{name}": kind for name, kind in OUTPUT_SENSORS.items()})
    expected.update({f"{stream}.dither-seed": ("string", "") for stream in streams})
    reply, informs = await client.request("sensor-list")
    listed = {inform[0]: inform for inform in text(informs)}
    assert list(listed) == sorted(listed) and int(reply[0]) == len(listed)
    found = {name: (inform[3], inform[2]) for name, inform in listed.items() if not name.startswith("karoo")}
    assert found == expected, set(found.items()) ^ set(expected.items())
    assert listed["device-status"][4:] == ["ok", "degraded", "fail"]
    assert listed["time.state"][4:] == ["ok", "ins", "del", "oop", "wait", "error"]

    _, informs = await client.request("sensor-list", r"/^input[01]\.rx\./")
    assert len(informs) == 6
    assert len(await values(client, "/clip-cnt$/")) == 2 + 2 * len(streams)
    assert (await client.request("sensor-value", "/no such/"))[0] == [b"0"]
    for request in ("sensor-list", "sensor-value"):
        await client.fails(request, "no-such-sensor", match="^Unknown sensor")
        await client.fails(request, "/(/")
    everything = await values(client, "/./")
    assert set(everything) == set(listed)
    for name, (timestamp, count, _, status, reading) in everything.items():
        assert float(timestamp) > 0 and count == "1", name
        assert status in {"unknown", "nominal", "warn", "error", "failure", "inactive"}, status
        kind = listed[name][3]
        if kind in ("float", "timestamp"):
            assert repr(float(reading)) == reading, (name, reading)
        elif kind == "integer":
            assert str(int(reading)) == reading
        elif kind == "boolean":
            assert reading in "01"
        elif kind == "discrete":
            assert reading in listed[name][4:]
    for stream in streams:
        assert 0 <= int(everything[f"{stream}.dither-seed"][4]) < 2**64


async def check_watcher(host, port, stream):
    """aiokatcp's own idea of a controller: it mirrors all sensors by their types."""
    client = aiokatcp.Client(host, port)
    watcher = aiokatcp.SensorWatcher(client)
    client.add_sensor_watcher(watcher)
    await asyncio.wait_for(watcher.synced.wait(), TIMEOUT)
    timestamp = watcher.sensors["input0.rx.timestamp"]
    before = timestamp.value
    moved = asyncio.Event()
    timestamp.attach(lambda _sensor, reading: moved.set() if reading.value > before else None)
    await asyncio.wait_for(moved.wait(), TIMEOUT)
    assert watcher.sensors[f"{stream}.input0.eq"].value.startswith(b"[")
    assert watcher.sensors["device-status"].value.value in (b"ok", b"degraded")
    client.close()
    await client.wait_closed()


async def check_rates(host, port):
    """Readings of every chunk are reported by `event`, and by `auto` once a second."""
    for strategy, count, seconds in [("event", 5, 0), ("auto", 3, 1.0)]:
        client = await Listener.open(host, port)
        start = time.monotonic()
        await client.request("sensor-sampling", "input0.rx.timestamp", strategy)
        reports = client.statuses["input0.rx.timestamp"]
        await client.until(lambda: len(reports) >= count)
        assert all(report[0] - start >= k * seconds for k, report in enumerate(reports)), reports
        numbers = [int(report[3]) for report in reports]
        assert all(a < b for a, b in zip(numbers, numbers[1:])), reports
        client.close()
        await client.wait_closed()


def gains_of(reply):
    return np.array([complex(part.decode()) for part in reply])


async def check_gains(client, stream, channels):
    rng = np.random.default_rng(1)
    pattern = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?[+-]\d+(\.\d+)?(e[+-]\d+)?j")
    steady = []
    for round in range(2):
        gains = rng.normal(size=channels) * np.exp(rng.uniform(-20, 20, channels)) + 1j * rng.normal(size=channels)
        line = [repr(gain) if k % 2 else f"{gain:.17g}" for k, gain in enumerate(gains.tolist())]
        assert (await client.request("gain", stream, round, *line))[0] == []
        reply, _ = await client.request("gain", stream, round)
        assert len(reply) == channels
        assert all(pattern.fullmatch(part.decode()) for part in reply)
        np.testing.assert_array_equal(gains_of(reply), gains.astype(np.complex64).astype(complex))
        sensor = await value(client, f"{stream}.input{round}.eq")
        assert sensor == "[" + ", ".join(part.decode() for part in reply) + "]"
        steady.append(int(await value(client, "steady-state-timestamp")))
    await client.request("gain-all", stream, "0.2-3j")
    for pol in range(2):
        reply, _ = await client.request("gain", stream, pol)
        assert reply == [b"0.20000000298023224-3j"]
        assert await value(client, f"{stream}.input{pol}.eq") == "[0.20000000298023224-3j]"
    await client.request("gain-all", stream, *line)
    await client.request("gain-all", stream, "default")
    reply, _ = await client.request("gain", stream, 1)
    assert len(reply) == 1 and reply[0].endswith(b"+0j")
    steady.append(int(await value(client, "steady-state-timestamp")))
    assert steady == sorted(steady) and steady[0] > 0
    await client.fails("gain", "nosuch", 0, match="'nosuch'")
    await client.fails("gain-all", "nosuch", 1, match="'nosuch'")
    await client.fails("gain", stream, 2, match="out of range")
    await client.fails("gain", stream, 0, 1, 2, match="2 gains")
    await client.fails("gain-all", stream)


async def check_numbers(client, stream):
    """Gains are accepted exactly where Python reads a complex number, and read as the same one."""
    texts = """1 -2.5 3j 1+2j 1e3-4e-2j (1+2j) j -j +J 1_0 1__0 _1 1_ .5 5. . e5 1e 1e+ 1e5 1E-5J (1 1) () ((1))
        1j+2 1+2 1++2j 1+-2j inf nan infinity -inf infj nanj 1+infj 0x10 1,5 1i 1jj 1e400 1e39 3.4e38 1e-50 1e-400j
        0.1+0.2j 16777217 -0 -0j 0-0j 1.0000000596046448 99999999999999999999""".split()
    texts += [" 1", "1 ", " ( 1+2j ) ", "1 +2j", "(1)\t", "", "\u00e9", "\u0661"]
    checked = 0
    for sent in texts:
        try:
            number = np.complex64(complex(sent))
        except (ValueError, OverflowError):
            number = None
        if sent == "\u0661":
            number = None  # Python reads all of Unicode's digits; that is not worth having.
        if number is None or not np.isfinite(number):
            await client.fails("gain", stream, 0, sent)
        else:
            await client.request("gain", stream, 0, sent)
            reply, _ = await client.request("gain", stream, 0)
            back = gains_of(reply)[0]
            assert back == complex(number), (sent, back, number)
        checked += 1
    await client.request("gain-all", stream, "default")
    return checked


async def check_delays(client, stream, sync_time, rate):
    models = [(3.76e-9, 0.12e-9, 7.322, 1.91), (2.67e-9, 0.02e-9, 5.678, -1.81)]
    words = ["{},{}:{},{}".format(*model) for model in models]
    names = [f"{stream}.input{pol}.delay" for pol in range(2)]
    for name in names:
        await client.request("sensor-sampling", name, "event")
    before = int(await value(client, "steady-state-timestamp"))
    await client.request("delays", stream, sync_time, *words)
    assert int(await value(client, "steady-state-timestamp")) >= before
    await client.until(lambda: all(len(client.statuses[name]) >= 2 for name in names))
    for name, (delay, delay_rate, phase, phase_rate) in zip(names, models):
        shown = ast.literal_eval(client.statuses[name][-1][3])
        wrapped = (phase + math.pi) % (2 * math.pi) - math.pi
        np.testing.assert_allclose(shown, (0, delay, delay_rate, wrapped, phase_rate), rtol=1e-6)
        assert client.statuses[name][-1][2] == "nominal"
        await client.request("sensor-sampling", name, "none")
    good = "0,0:0,0"
    for arguments, match in [
        ((stream,), "missing"),
        ((stream, good, good), "start-time"),
        ((stream, sync_time, good), "missing"),
        ((stream, sync_time, good, good, good), "too many"),
        ((stream, sync_time - 1, good, good), "sync time"),
        ((stream, sync_time, "0,00,0", good), "input 0"),
        ((stream, sync_time, good, "00:0,0"), "input 1"),
        ((stream, sync_time, good, "0,0:00"), "input 1"),
        ((stream, sync_time, good, "0,0:x,0"), "'x'"),
        ((stream, sync_time, good, "0,y:0,0"), "'y'"),
        ((stream, sync_time, good, "0,1:0,0"), "rate"),
        ((stream, sync_time, good, "nan,0:0,0"), "nan"),
        ((stream, sync_time, "inf,0:0,0", good), "finite"),
        ((stream, "nan", good, good), "nan"),
        (("nosuch", sync_time, good, good), "'nosuch'"),
    ]:
        await client.fails("delays", *arguments, match=match)


async def check_apart(client, streams, sync_time):
    """What is asked of one stream is nothing to the others."""

    async def state():
        found = await values(client, r"/\.(eq|delay)$/")
        return {name: inform[4] for name, inform in found.items()}

    for stream in streams:
        before = await state()
        await client.request("gain", stream, 0, "0.5-2j")
        await client.request("gain", stream, 1, "-3j")
        delays = [f"{stream}.input{pol}.delay" for pol in range(2)]
        for name in delays:
            await client.request("sensor-sampling", name, "event")
        reported = {name: len(client.statuses[name]) for name in delays}
        await client.request("delays", stream, sync_time, "5e-9,0:0.25,0", "6e-9,0:0.5,0")
        await client.until(lambda: all(len(client.statuses[name]) > reported[name] for name in delays))
        for name in delays:
            await client.request("sensor-sampling", name, "none")
        after = await state()
        changed = {name for name in before if before[name] != after[name]}
        assert changed == {name for name in before if name.startswith(f"{stream}.")}, (stream, changed)
        await client.request("gain-all", stream, "default")


async def check_steering_by_many(host, port, stream, clients):
    async def steer(index):
        client = await Listener.open(host, port)
        for k in range(20):
            await client.request("gain", stream, k % 2, f"{index + 1}+{k}j")
            assert await value(client, f"{stream}.input{k % 2}.eq")
        client.close()
        await client.wait_closed()

    await asyncio.wait_for(asyncio.gather(*map(steer, range(clients))), TIMEOUT)


async def check_halt(client):
    reply, informs = await client.request("halt")
    assert reply == [] and informs == []
    await asyncio.wait_for(client.wait_disconnected(), TIMEOUT)


async def main(host, port, sync_time, rate, streams):
    client = await Listener.open(host, port)
    first = next(iter(streams))
    await check_standard(client, first)
    await check_sensors(client, streams)
    await check_rates(host, port)
    for stream, channels in streams.items():
        await check_watcher(host, port, stream)
        await check_gains(client, stream, channels)
        await check_delays(client, stream, sync_time, rate)
    await check_apart(client, streams, sync_time)
    numbers = await check_numbers(client, first)
    await check_steering_by_many(host, port, first, 6)
    await check_halt(client)
    print(json.dumps({"aiokatcp": aiokatcp.__version__, "numbers": numbers}))


if __name__ == "__main__":
    # Whoever does not answer fails the test.
    signal.alarm(300)
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    host, port, sync_time, rate, *outputs = sys.argv[1:]
    streams = {stream: int(channels) for stream, channels in (output.split("=") for output in outputs)}
    asyncio.run(main(host, int(port), float(sync_time), float(rate), streams))
