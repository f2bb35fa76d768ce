"""katgpucbf's X-engine receiver: takes the heaps of an array's F-engines, and says what came.

Prints a line of JSON at the end of its time, or as soon as it is told to end.
"""

import argparse
import asyncio
import json
import signal
import time

import numpy as np
import spead2.recv
from katgpucbf import recv as base_recv
from katgpucbf.utils import TimeConverter
from katgpucbf.xbgpu import recv

MAX_CHUNKS = 8


def statistics(stream):
    """Of all heaps, by the names that katgpucbf gives them."""
    stats = stream.stats
    return {name.removeprefix("katgpucbf."): stats[name] for name in stats if isinstance(stats[name], int)}


async def receive(args):
    layout = recv.Layout(
        n_ants=args.antennas,
        n_channels_per_substream=args.channels,
        n_spectra_per_heap=args.spectra,
        heap_timestamp_step=args.step,
        sample_bits=8,
        heaps_per_fengine_per_chunk=args.batches,
    )
    data = spead2.recv.asyncio.ChunkRingbuffer(MAX_CHUNKS)
    free = spead2.recv.ChunkRingbuffer(2 * MAX_CHUNKS)
    stream = recv.make_stream(layout, data, free, -1, MAX_CHUNKS)
    for _ in range(2 * MAX_CHUNKS):
        chunk = recv.Chunk(
            data=np.zeros(layout.chunk_bytes, np.int8), present=np.zeros(layout.chunk_heaps, np.uint8), sink=stream
        )
        chunk.recycle()
    base_recv.add_reader(
        stream, src=[(args.group, args.port)], interface=args.interface, ibv=False, comp_vector=-1, buffer_size=64 << 20
    )
    print("receiving", flush=True)
    sensors = base_recv.make_sensors(10.0)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stream.stop)
    # Of each batch after all antennas have come once: its timestamp, and those that were there.
    batches = {}
    differ = 0
    whole_at = None
    async for chunk in recv.iter_chunks(data, layout, sensors, TimeConverter(args.sync_time, args.rate)):
        with chunk:
            present = chunk.present.reshape(args.batches, args.antennas).astype(bool)
            values = chunk.data.reshape(args.batches, args.antennas, -1)
            first = chunk.chunk_id * args.batches
            for number, (there, heaps) in enumerate(zip(present, values), first):
                if whole_at is None and there.all():
                    whole_at = time.monotonic()
                if whole_at is None or time.monotonic() > whole_at + args.seconds:
                    continue
                batches[number * args.step] = "".join("01"[int(antenna)] for antenna in there)
                # All antennas have the same signal and are steered alike.
                some = heaps[there]
                differ += int((some != some[:1]).any()) if len(some) else 0
        if whole_at is not None and time.monotonic() > whole_at + args.seconds:
            break
    report = {"batches": batches, "differ": differ, "statistics": statistics(stream)}
    print(json.dumps(report), flush=True)
    stream.stop()


def main():
    parser = argparse.ArgumentParser()
    for name, kind in {
        "group": str, "port": int, "interface": str, "antennas": int, "channels": int, "spectra": int, "step": int,
        "batches": int, "sync-time": float, "rate": float, "seconds": float,
    }.items():
        parser.add_argument(f"--{name}", type=kind, required=True)
    asyncio.run(receive(parser.parse_args()))


main()
