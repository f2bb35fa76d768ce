"""Runs a command whose log goes to a collector of the Graylog Extended Log Format here, and prints what it sent.

The collector knows the format alone (https://go2docs.graylog.org, GELF by UDP): zlib or plain JSON, in chunks or whole.
"""

import json
import os
import select
import socket
import subprocess
import sys
import zlib

CHUNK = b"\x1e\x0f"


def main():
    collector = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    collector.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    collector.bind(("127.0.0.1", 0))
    port = collector.getsockname()[1]
    environment = dict(os.environ, KATSDP_LOG_GELF_ADDRESS=f"127.0.0.1:{port}")
    command = subprocess.run(sys.argv[1:], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    packed, parts, largest = [], {}, 0
    # All is in the socket by now.
    while select.select([collector], [], [], 0)[0]:
        datagram = collector.recv(65536)
        largest = max(largest, len(datagram))
        if not datagram.startswith(CHUNK):
            packed.append(datagram)
            continue
        message, number, count = datagram[2:10], datagram[10], datagram[11]
        assert 1 < count <= 128 and number < count
        chunks = parts.setdefault(message, {})
        assert number not in chunks
        chunks[number] = datagram[12:]
        if len(chunks) == count:
            packed.append(b"".join(chunk for _, chunk in sorted(parts.pop(message).items())))
    assert not parts, "chunks are missing"
    messages = [json.loads(zlib.decompress(text)) for text in packed]
    for message in messages:
        assert message["version"] == "1.1" and message["host"] and message["short_message"]
        assert all(name.startswith("_") or name in ("version", "host", "short_message", "full_message", "timestamp", "level") for name in message)
        assert "_id" not in message
        assert all(isinstance(value, (str, int, float)) and not isinstance(value, bool) for value in message.values())
    print(json.dumps({"messages": messages, "largest": largest, "code": command.returncode, "stderr": command.stderr.decode()}))


main()
