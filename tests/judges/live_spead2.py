#!/usr/bin/env python3
"""Be a digitiser and an X-engine of a live F-engine, with spead2 alone.

usage: live_spead2.py EXPECTATION INPUT OUTPUT

EXPECTATION is a JSON object: interface (address of ours), sources (two lists of groups, one per polarisation), port (theirs), dst
(group and port of each substream, and the timestamp that is to be reached), heap_samples, sample_bits, ahead (samples that
may be under way).

INPUT holds heaps as timestamp (u64), polarisation (u64) and packed samples; they are sent as a digitiser sends them, each
polarisation's by turns to its groups. Heaps of spectra are received, and written to OUTPUT as number of the substream (u64),
timestamp (u64), first channel (u64), number of bytes (u64) and bytes. All integers are little-endian. Prints what was received as JSON.
"""

import json
import signal
import struct
import sys
import threading
import time

import numpy as np
import spead2
import spead2.recv
import spead2.send

TIMESTAMP, DIGITISER_ID, DIGITISER_STATUS, ADC_SAMPLES = 0x1600, 0x3101, 0x3102, 0x3300
FREQUENCY, FENG_RAW = 0x4103, 0x4300
TOO_LONG = 180.0


class Receiver(threading.Thread):
    """One substream."""

    def __init__(self, expect, group, port):
        super().__init__(daemon=True)
        config = spead2.recv.StreamConfig(max_heaps=16, stop_on_stop_item=False)
        ring = spead2.recv.RingStreamConfig(heaps=256, contiguous_only=False)
        self.stream = spead2.recv.Stream(spead2.ThreadPool(), config, ring)
        self.stream.add_udp_reader(
            group, port, max_size=9200, buffer_size=1 << 23, interface_address=expect["interface"]
        )
        self.heaps, self.incomplete, self.end = [], 0, 0

    def run(self):
        for heap in self.stream:
            if isinstance(heap, spead2.recv.IncompleteHeap):
                self.incomplete += 1
                continue
            # Descriptors were sent when the engine started, before anybody here listened.
            items = {item.id: item for item in heap.get_items()}
            if FENG_RAW in items:
                timestamp, channel = (items[name].immediate_value for name in (TIMESTAMP, FREQUENCY))
                self.heaps.append((timestamp, channel, bytes(items[FENG_RAW])))
                self.end = timestamp


def read_heaps(path, heap_bytes):
    with open(path, "rb") as file:
        while head := file.read(16):
            timestamp, pol = struct.unpack("<QQ", head)
            yield timestamp, pol, np.frombuffer(file.read(heap_bytes), np.uint8)


def digitiser(expect):
    groups = [group for pol in expect["sources"] for group in pol]
    return spead2.send.UdpStream(
        spead2.ThreadPool(),
        [(group, expect["port"]) for group in groups],
        spead2.send.StreamConfig(max_packet_size=8192, rate=2e7),
        ttl=1,
        interface_address=expect["interface"],
    )


def main(expect, source, destination):
    receivers = [Receiver(expect, group, port) for group, port, _ in expect["dst"]]
    for receiver in receivers:
        receiver.start()
    stream = digitiser(expect)
    heap_bytes = expect["heap_samples"] * expect["sample_bits"] // 8
    flavour = spead2.Flavour(4, 64, 48)
    deadline = time.monotonic() + TOO_LONG
    first, sent = None, [0, 0]

    def reached():
        return min(receiver.end for receiver in receivers)

    def wait(happened):
        while not happened():
            if time.monotonic() > deadline:
                sys.exit(f"too long: {reached()} reached")
            time.sleep(0.001)

    for timestamp, pol, samples in read_heaps(source, heap_bytes):
        first = timestamp if first is None else first
        wait(lambda: timestamp < max(reached(), first) + expect["ahead"])
        heap = spead2.send.Heap(flavour)
        for item, value in [(TIMESTAMP, timestamp), (DIGITISER_ID, pol), (DIGITISER_STATUS, 0)]:
            heap.add_item(spead2.Item(item, "", "", (), format=[("u", 48)], value=value))
        heap.add_item(spead2.Item(ADC_SAMPLES, "", "", samples.shape, dtype=samples.dtype, value=samples))
        heap.repeat_pointers = True
        groups = expect["sources"][pol]
        index = pol * len(expect["sources"][0]) + sent[pol] % len(groups)
        sent[pol] += 1
        stream.send_heap(heap, substream_index=index)
    wait(lambda: all(receiver.end >= last for receiver, (*_, last) in zip(receivers, expect["dst"])))
    # A thread that is still in spead2 when Python ends would end the process by a signal.
    for receiver in receivers:
        receiver.stream.stop()
    for receiver in receivers:
        receiver.join(TOO_LONG)
    with open(destination, "wb") as file:
        for number, receiver in enumerate(receivers):
            for timestamp, channel, data in receiver.heaps:
                file.write(struct.pack("<QQQQ", number, timestamp, channel, len(data)) + data)
    print(
        json.dumps(
            {
                "sent": sent,
                "heaps": [len(receiver.heaps) for receiver in receivers],
                "incomplete": [receiver.incomplete for receiver in receivers],
            }
        )
    )


if __name__ == "__main__":
    # Whoever does not answer fails the test.
    signal.alarm(300)
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3])
