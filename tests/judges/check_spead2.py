#!/usr/bin/env python3
"""Check an output capture with spead2, independently of Karoo's own reader.

usage: check_spead2.py CAPTURE EXPECTATION

EXPECTATION is a JSON object (or a file that holds one); only what it names is expected:

    dst             list of "address:port", one per substream, in order (required)
    channels        channels of the stream (required)
    spectra_per_heap, feng_id, array_size (required)
    sample_bits     8, or 4: then feng_raw has no dtype, and spead2 decodes its fields (default 8)
    decimation      of a narrowband stream (default 1)
    batches         number of batches
    first_timestamp, last_timestamp
    stop_heaps      whether every substream must end with a stop heap (default true)
    descriptors     whether every substream must have a descriptor heap (default true)

Prints what it found as JSON. Exit code 0 when all holds, 1 when anything does not, 2 for a wrong command line.

spead2 reads the capture once per substream, with a filter for its destination. It decodes heaps by their own
descriptors, and does not stop at stop heaps, so that these and what comes after them are seen. A heap that
lacks packets shows as a substream missing from its batch and a gap in the heap counts.
"""

import json
import os
import sys

import numpy as np
import spead2
import spead2.recv

TIMESTAMP, FENG_ID, FREQUENCY, FENG_RAW = 0x1600, 0x4101, 0x4103, 0x4300
DESCRIPTOR = 0x0005


def read_substream(capture, endpoint, expect, problem):
    """Read one substream; return its data heaps (timestamp, count) and control heap counts."""
    address, _, port = endpoint.partition(":")
    config = spead2.recv.StreamConfig(
        max_heaps=64, stop_on_stop_item=False, allow_unsized_heaps=False, explicit_start=True
    )
    ring = spead2.recv.RingStreamConfig(heaps=64, contiguous_only=False)
    stream = spead2.recv.Stream(spead2.ThreadPool(), config, ring)
    stream.add_udp_pcap_file_reader(capture, filter=f"dst host {address} and udp dst port {port}")
    stream.start()

    substream = expect["dst"].index(endpoint)
    per = expect["channels"] // len(expect["dst"])
    shape = (per, expect["spectra_per_heap"], 2, 2)
    step = 2 * expect["channels"] * expect["spectra_per_heap"] * expect.get("decimation", 1)
    bits = expect.get("sample_bits", 8)
    dtype = np.dtype({8: np.int8, 4: object}[bits])
    group = spead2.ItemGroup()
    found = {"data": [], "descriptors": [], "stops": [], "sum_squares": 0}
    for heap in stream:
        where = f"{endpoint}, heap count {heap.cnt}"
        if isinstance(heap, spead2.recv.IncompleteHeap):
            problem(f"{where}: incomplete, {heap.received_length} of {heap.heap_length} bytes")
            continue
        if heap.is_end_of_stream():
            found["stops"].append(heap.cnt)
            continue
        if found["stops"]:
            problem(f"{where}: after the stop heap")
        descriptors = heap.get_descriptors()
        updated = group.update(heap)
        if descriptors:
            found["descriptors"].append(heap.cnt)
            check_descriptors(descriptors, shape, bits, where, problem)
            if not updated:
                continue
        if set(updated) != {"timestamp", "feng_id", "frequency", "feng_raw"}:
            problem(f"{where}: items {sorted(updated)}, not the four of a data heap")
            continue
        timestamp = int(group["timestamp"].value)
        raw = group["feng_raw"].value
        if timestamp % step:
            problem(f"{where}: timestamp {timestamp} is no multiple of {step}")
        if int(group["feng_id"].value) != expect["feng_id"]:
            problem(f"{where}: feng_id {group['feng_id'].value}, not {expect['feng_id']}")
        if int(group["frequency"].value) != substream * per:
            problem(f"{where}: frequency {group['frequency'].value}, not {substream * per}")
        if raw.shape != shape or raw.dtype != dtype:
            problem(f"{where}: feng_raw {raw.dtype} {raw.shape}, not {dtype} {shape}")
        if (raw == -(2 ** (bits - 1))).any():
            problem(f"{where}: feng_raw holds {-(2 ** (bits - 1))}, which is never sent")
        found["data"].append((timestamp, heap.cnt))
        found["sum_squares"] += int((raw.astype(np.int64) ** 2).sum())
    stream.stop()
    incomplete = sum(stream.stats[f"incomplete_heaps_{end}"] for end in ["evicted", "flushed"])
    if incomplete:
        problem(f"{endpoint}: {incomplete} incomplete heaps")
    return found


def check_descriptors(descriptors, shape, bits, where, problem):
    by_id = {d.id: d for d in descriptors}
    if set(by_id) != {TIMESTAMP, FENG_ID, FREQUENCY, FENG_RAW}:
        problem(f"{where}: descriptors of {[hex(i) for i in sorted(by_id)]}")
        return
    for item, name in [(TIMESTAMP, "timestamp"), (FENG_ID, "feng_id"), (FREQUENCY, "frequency")]:
        d = by_id[item]
        if d.name.decode() != name or tuple(d.shape) != () or list(d.format) != [("u", 48)]:
            problem(f"{where}: descriptor of {name} is {d.name!r} {d.shape} {d.format}")
    raw = by_id[FENG_RAW]
    if raw.name.decode() != "feng_raw":
        problem(f"{where}: descriptor of feng_raw is named {raw.name!r}")
    decoded = spead2.Item.from_raw(raw, spead2.Flavour())
    described = (tuple(decoded.shape), decoded.dtype, list(decoded.format or []))
    expected = (shape, np.int8, []) if bits == 8 else (shape, None, [("i", bits)])
    if described != expected:
        problem(f"{where}: feng_raw is described as {described}, not {expected}")


def check(capture, expect):
    problems = []
    problem = problems.append
    found = {dst: read_substream(capture, dst, expect, problem) for dst in expect["dst"]}

    counts = []
    batches = {}
    for dst, sub in found.items():
        timestamps = [t for t, _ in sub["data"]]
        if len(set(timestamps)) != len(timestamps):
            problem(f"{dst}: several heaps with the same timestamp")
        for t in timestamps:
            batches.setdefault(t, []).append(dst)
        counts += [c for _, c in sub["data"]] + sub["descriptors"] + sub["stops"]
        if expect.get("stop_heaps", True) and len(sub["stops"]) != 1:
            problem(f"{dst}: {len(sub['stops'])} stop heaps, not 1")
        if expect.get("descriptors", True) and not sub["descriptors"]:
            problem(f"{dst}: no descriptor heap")
    for t, have in sorted(batches.items()):
        if len(have) != len(expect["dst"]):
            missing = sorted(set(expect["dst"]) - set(have))
            problem(f"timestamp {t}: {len(missing)} substreams missing, first {missing[0]}")

    array, feng = expect["array_size"], expect["feng_id"]
    wrong = [c for c in counts if c % array != feng]
    if wrong:
        problem(f"{len(wrong)} heap counts are not {feng} modulo {array}, first {wrong[0]}")
    counts.sort()
    steps = {b - a for a, b in zip(counts, counts[1:])}
    if steps - {array}:
        problem(f"heap counts of all substreams together step by {sorted(steps)}, not by {array} alone")
    if counts and counts[0] != feng:
        problem(f"heap counts begin at {counts[0]}, not {feng}")

    times = sorted(batches)
    summary = {
        "batches": len(times),
        "first_timestamp": times[0] if times else None,
        "last_timestamp": times[-1] if times else None,
    }
    for key, value in summary.items():
        if key in expect and expect[key] != value:
            problem(f"{key} is {value}, not {expect[key]}")
    bytes_per_heap = expect["channels"] // len(expect["dst"]) * expect["spectra_per_heap"] * 4
    heaps = sum(len(s["data"]) for s in found.values())
    total = sum(s["sum_squares"] for s in found.values())
    return summary | {
        "heaps": heaps,
        "descriptor_heaps": sum(len(s["descriptors"]) for s in found.values()),
        "stop_heaps": sum(len(s["stops"]) for s in found.values()),
        "rms": (total / (heaps * bytes_per_heap)) ** 0.5 if heaps else None,
        "problems": problems,
    }


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    text = argv[2]
    if os.path.exists(text):
        with open(text, encoding="utf-8") as file:
            text = file.read()
    try:
        expect = json.loads(text)
        for key in ["dst", "channels", "spectra_per_heap", "feng_id", "array_size"]:
            expect[key]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        print(f"check_spead2.py: expectation: {error!r}", file=sys.stderr)
        return 2
    result = check(argv[1], expect)
    print(json.dumps(result, indent=1))
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
