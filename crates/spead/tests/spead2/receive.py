#!/usr/bin/env python3
"""Receive a SPEAD stream by spead2 on a free UDP port of this host, until it ends.

Prints the port, then each complete heap as it comes, as JSON, then how many heaps were incomplete.
An item is its shape and its value: complex numbers as pairs, bytes as text.
"""

import json
import signal
import socket

import numpy as np
import spead2
import spead2.recv


def plain(value):
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, complex):
        return [value.real, value.imag]
    if isinstance(value, bytes):
        return value.decode("ascii")
    return value


def main():
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    end.bind(("127.0.0.1", 0))
    stream = spead2.recv.Stream(
        spead2.ThreadPool(),
        spead2.recv.StreamConfig(max_heaps=8, allow_out_of_order=True),
        spead2.recv.RingStreamConfig(heaps=64),
    )
    stream.add_udp_reader(end)
    print(json.dumps(end.getsockname()[1]), flush=True)
    group = spead2.ItemGroup()
    for heap in stream:
        items = group.update(heap).values()
        came = {
            item.name: {"shape": list(np.shape(item.value)), "value": plain(item.value)}
            for item in items
        }
        print(json.dumps({"heap_count": heap.cnt, "items": came}), flush=True)
    stats = stream.stats
    incomplete = stats.incomplete_heaps_evicted + stats.incomplete_heaps_flushed
    print(json.dumps(incomplete), flush=True)


signal.alarm(60)  # whoever waits for this script learns that it has failed
main()
