#!/usr/bin/env python3
"""Make an F-engine output capture with spead2's own sender, as another engine would send it.

usage: make_spead2_capture.py CAPTURE ARRAY

Writes CAPTURE (pcap) and prints the expectation for check_spead2.py as JSON. Heaps are sent through the loopback
interface to one socket per substream; the datagrams received there are written with the multicast addresses
that the expectation names. ARRAY (npy) has all that was sent, as int8: (batch, channel, spectrum, pol, part).
"""

import ipaddress
import json
import socket
import struct
import sys

import numpy as np
import spead2
import spead2.send

CHANNELS, SUBSTREAMS, SPECTRA, FENG_ID, ARRAY_SIZE = 64, 4, 32, 5, 16
BATCHES, FIRST = 3, 1 << 21
PER = CHANNELS // SUBSTREAMS
BASE = ipaddress.IPv4Address("239.102.200.64")


def frame(substream, payload):
    destination = (BASE + substream).packed
    udp = struct.pack(">HHHH", 5000, 7148, 8 + len(payload), 0)
    ip = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0x4000, 4, 17, 0, b"\x0a\x00\x00\x01", destination
    )
    words = sum(struct.unpack(">10H", ip))
    words = (words & 0xFFFF) + (words >> 16)
    ip = ip[:10] + struct.pack(">H", 0xFFFF - ((words & 0xFFFF) + (words >> 16))) + ip[12:]
    mac = b"\x01\x00\x5e" + bytes([destination[1] & 0x7F]) + destination[2:]
    return mac + b"\x02\0\0\0\0\x01" + b"\x08\x00" + ip + udp + payload


def main(path, array):
    sockets = []
    for _ in range(SUBSTREAMS):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(1.0)
        sockets.append(sock)
    stream = spead2.send.UdpStream(
        spead2.ThreadPool(),
        [sock.getsockname() for sock in sockets],
        spead2.send.StreamConfig(max_packet_size=1024 + 72, max_heaps=1024),
    )
    stream.set_cnt_sequence(FENG_ID, ARRAY_SIZE)
    group = spead2.send.ItemGroup(flavour=spead2.Flavour(4, 64, 48))
    for item, name in [(0x1600, "timestamp"), (0x4101, "feng_id"), (0x4103, "frequency")]:
        group.add_item(item, name, "", (), format=[("u", 48)])
    group.add_item(0x4300, "feng_raw", "", (PER, SPECTRA, 2, 2), dtype=np.int8)

    datagrams = []

    def collect(substream, packets):
        for _ in range(packets):
            datagrams.append(frame(substream, sockets[substream].recv(9200)))

    for substream in range(SUBSTREAMS):
        stream.send_heap(group.get_heap(descriptors="all", data="none"), substream_index=substream)
        collect(substream, 1)
    rng = np.random.default_rng(1)
    sent = np.zeros((BATCHES, CHANNELS, SPECTRA, 2, 2), np.int8)
    for batch in range(BATCHES):
        for substream in range(SUBSTREAMS):
            group["timestamp"].value = FIRST + batch * 2 * CHANNELS * SPECTRA
            group["feng_id"].value = FENG_ID
            group["frequency"].value = substream * PER
            raw = rng.normal(0, 20, (PER, SPECTRA, 2, 2)).clip(-127, 127).round()
            group["feng_raw"].value = raw.astype(np.int8)
            sent[batch, substream * PER : (substream + 1) * PER] = raw
            heap = group.get_heap(descriptors="none", data="all")
            heap.repeat_pointers = True
            stream.send_heap(heap, substream_index=substream)
            collect(substream, PER * SPECTRA * 4 // 1024)
    for substream in range(SUBSTREAMS):
        stream.send_heap(group.get_end(), substream_index=substream)
        collect(substream, 1)

    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for data in datagrams:
            file.write(struct.pack("<IIII", 0, 0, len(data), len(data)) + data)
    np.save(array, sent)
    expectation = {
        "dst": [f"{BASE + i}:7148" for i in range(SUBSTREAMS)],
        "channels": CHANNELS,
        "spectra_per_heap": SPECTRA,
        "feng_id": FENG_ID,
        "array_size": ARRAY_SIZE,
        "batches": BATCHES,
        "first_timestamp": FIRST,
        "last_timestamp": FIRST + (BATCHES - 1) * 2 * CHANNELS * SPECTRA,
    }
    print(json.dumps(expectation))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
