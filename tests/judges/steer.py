"""Steers an engine as a controller does, by aiokatcp.

Sets the gains of both polarisations and their delays, checks what the engine says of both, and prints as JSON from which
timestamp on all output reflects them. With "halt", ends the engine instead.
"""

import asyncio
import json
import signal
import sys

import aiokatcp


async def sensor(client, name):
    _, informs = await client.request("sensor-value", name)
    [inform] = informs
    return inform.arguments[3].decode(), inform.arguments[4].decode()


async def main(host, port, action, *args):
    client = await aiokatcp.Client.connect(host, int(port))
    if action == "halt":
        await client.request("halt")
        client.close()
        await client.wait_closed()
        return {}
    stream, gain, start, delay0, delay1 = args
    await client.request("gain-all", stream, gain)
    reply, _ = await client.request("gain", stream, 0)
    assert len(reply) == 1 and abs(complex(reply[0].decode()) - complex(gain)) < 1e-6, reply
    assert await sensor(client, f"{stream}.input1.eq") == ("nominal", f"[{reply[0].decode()}]")
    await client.request("delays", stream, start, delay0, delay1)
    status, steady = await sensor(client, "steady-state-timestamp")
    assert status == "nominal", status
    try:
        await client.request("delays", stream, start, delay0)
    except aiokatcp.FailReply:
        pass
    else:
        raise AssertionError("one model is not enough")
    # Its status depends on how long ago the last chunk came.
    _, received = await sensor(client, "input0.rx.timestamp")
    client.close()
    await client.wait_closed()
    return {"steady": int(steady), "received": int(received)}


# Whoever does not answer fails the test.
signal.alarm(300)
json.dump(asyncio.run(main(*sys.argv[1:])), sys.stdout)
