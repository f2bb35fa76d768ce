#!/usr/bin/env python3
"""Halt an F-engine that takes no requests while one client's requests wait for it.

usage: halt_katcp.py HOST PORT STREAM REQUESTS

One client sends so many requests for delays and gains at once, another says ?halt when the first of them are answered. Prints
how many were done, and the texts of those that failed, as JSON. A request without a reply fails this.
"""

import asyncio
import json
import signal
import sys

import aiokatcp


async def main(host, port, stream, requests):
    one = await aiokatcp.Client.connect(host, port)
    two = await aiokatcp.Client.connect(host, port)
    models = ["0,0:0,0", "1e-9,0:0,0"]
    replies = []
    for k in range(requests):
        what = ("delays", stream, 1_632_561_921 + k, *models) if k % 2 else ("gain", stream, 0, f"{k}+1j")
        replies.append(asyncio.ensure_future(one.request(*what)))
    await asyncio.wait(replies, return_when=asyncio.FIRST_COMPLETED)
    await two.request("halt")
    ends = await asyncio.gather(*replies, return_exceptions=True)
    await one.wait_disconnected()
    lost = [end for end in ends if isinstance(end, Exception) and not isinstance(end, aiokatcp.FailReply)]
    assert not lost, lost
    failed = [str(end) for end in ends if isinstance(end, aiokatcp.FailReply)]
    print(json.dumps({"ok": len(ends) - len(failed), "fail": failed}))


if __name__ == "__main__":
    # Whoever does not answer fails the test.
    signal.alarm(120)
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
