#!/usr/bin/env python3
"""Send a SPEAD stream by spead2 to a UDP port of this host.

usage: send.py types|types40|interleaved|pointers|repeated PORT

Waits for a line of input before each heap or group of heaps, so that no packet is lost.
"""

import signal
import sys

import numpy as np
import spead2
import spead2.send

ITEMS = [
    ("count", (), dict(format=[("u", 48)]), 0x123456789ABC),
    ("small", (), dict(format=[("i", 16)]), -3),
    ("number", (), dict(dtype=np.int32), -70000),
    ("matrix", (2, 3), dict(dtype=np.dtype("<i2")), np.array([[1, -2, 3], [-4, 5, -6]])),
    ("columns", (2, 3), dict(dtype=np.dtype(">f8"), order="F"), np.arange(1, 7).reshape(2, 3) / 8),
    ("flags", (4,), dict(dtype=np.bool_), np.array([True, False, False, True])),
    ("voltages", (2,), dict(dtype=np.complex64), np.array([1 - 2j, 0.5j])),
    ("samples", (None,), dict(format=[("i", 12)]), [2047, -2048, -1, 0, 7]),
    ("pairs", (2,), dict(format=[("u", 4), ("i", 20)]), [(15, -1), (3, 99999)]),
    ("telescope", (None,), dict(format=[("c", 8)]), "MeerKAT"),
    ("nothing", (0,), dict(dtype=np.uint8), np.zeros(0, np.uint8)),
]


def types(stream, flavour):
    group = spead2.send.ItemGroup(flavour=flavour)
    for n, (name, shape, kind, value) in enumerate(ITEMS):
        group.add_item(0x1000 + n, name, f"The {name}", shape, value=value, **kind)
    sys.stdin.readline()
    stream.send_heap(group.get_heap(descriptors="all", data="all"))
    group["samples"].value = [1, -1]
    group["number"].value = 5
    sys.stdin.readline()
    stream.send_heap(group.get_heap(descriptors="none", data="stale"))
    sys.stdin.readline()
    stream.send_heap(group.get_end())


def raw(heap_bytes, flavour, immediates=0, repeat=False):
    """A heap without descriptors: immediate items n with the value 3n, then bytes."""
    heap = spead2.send.Heap(flavour)
    for n in range(immediates):
        heap.add_item(spead2.Item(0x2000 + n, f"i{n}", "", (), format=[("u", 32)], value=3 * n))
    shape = heap_bytes.shape
    heap.add_item(spead2.Item(0x5000, "bytes", "", shape, dtype=np.uint8, value=heap_bytes))
    heap.repeat_pointers = repeat
    return heap


def main():
    case, port = sys.argv[1:]
    config = spead2.send.StreamConfig(max_packet_size=1472, max_heaps=16)
    stream = spead2.send.UdpStream(spead2.ThreadPool(), [("127.0.0.1", int(port))], config)
    if case.startswith("types"):
        types(stream, spead2.Flavour(4, 64, 40) if case == "types40" else spead2.Flavour())
        return
    sys.stdin.readline()
    flavour = spead2.Flavour()
    pattern = (np.arange(20000) % 251).astype(np.uint8)
    if case == "interleaved":
        heaps = [spead2.send.HeapReference(raw(pattern + n, flavour), cnt=n) for n in (11, 12, 13)]
        stream.send_heaps(heaps, spead2.send.GroupMode.ROUND_ROBIN)
    elif case == "pointers":
        stream.send_heap(raw(pattern, flavour, immediates=1000), cnt=21)
    else:
        stream.send_heap(raw(pattern, flavour, immediates=20, repeat=True), cnt=31)


signal.alarm(60)  # whoever waits for this script learns that it has failed
main()
