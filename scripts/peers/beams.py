"""katgpucbf's V-engine receiver behind Karoo: a beam of one antenna is what a VLBI output of Karoo's has."""

import asyncio
import contextlib
import itertools
import subprocess
import time

import environment
import fengines
import network
import numpy as np
import spead2
import spead2.send
from katgpucbf import recv as base_recv
from katgpucbf.spead import BEAM_ANTS_ID, BF_RAW_ID, FLAVOUR, FREQUENCY_ID, TIMESTAMP_ID
from katgpucbf.utils import TimeConverter
from katgpucbf.vgpu import recv

POLS, COMPLEX, CHUNKS, BATCHES = ("x", "y"), 2, 4, 8
GROUPS = ["239.11.0.1", "239.11.1.1"]
# Of the digitiser's packets.
LOSS = """table ip loss {
  chain loss {
    type filter hook input priority 0;
    ip daddr 239.102.0.0/16 udp dport 7148 numgen random mod 100 == 0 drop
  }
}
"""


class Beams(fengines.Heaps):
    """Sends each polarisation of heaps that come as a beam of its own, as MeerKAT's beamformers do with several antennas."""

    def __init__(self, add_readers):
        config = spead2.send.StreamConfig(rate=0.0, max_packet_size=8872)
        endpoints = [(group, fengines.PORT) for group in GROUPS]
        pool = spead2.ThreadPool()
        self.sender = spead2.send.UdpStream(pool, endpoints, config, interface_address=fengines.LOCAL, ttl=1)
        super().__init__(add_readers)

    def shape(self, output):
        """Channels of a heap, spectra, polarisations, parts."""
        self.heap_shape = output.channels // output.substreams, output.spectra, len(POLS), COMPLEX
        return self

    def take(self):
        for heap in self.stream:
            items = {item.id: item for item in heap.get_items()}
            if fengines.VALUES not in items:
                continue
            timestamp, channel = (items[name].immediate_value for name in (fengines.TIMESTAMP, fengines.CHANNEL))
            data = np.frombuffer(bytes(items[fengines.VALUES]), np.int8).reshape(self.heap_shape)
            self.found[timestamp, channel] = data
            for pol in range(len(POLS)):
                group = spead2.send.ItemGroup(flavour=FLAVOUR)
                for name, value in ((TIMESTAMP_ID, timestamp), (FREQUENCY_ID, channel), (BEAM_ANTS_ID, 1)):
                    group.add_item(name, f"i{name:x}", "", (), format=[("u", FLAVOUR.heap_address_bits)], value=value)
                values = np.ascontiguousarray(data[:, :, pol])
                group.add_item(BF_RAW_ID, "bf_raw", "", values.shape, values.dtype, value=values)
                beam = group.get_heap(descriptors="none", data="all")
                # A packet has to have all that is not the values.
                beam.repeat_pointers = True
                self.sender.send_heap(beam, substream_index=pol)


async def received(layout, sync_time, rate, seconds):
    """Chunks that the V-engine's receiver makes of beams, from the first whole one on, and what it counts."""
    data = spead2.recv.asyncio.ChunkRingbuffer(CHUNKS)
    free = spead2.recv.ChunkRingbuffer(CHUNKS)
    group = recv.make_stream_group(layout, data, free, -1, POLS)
    shape = len(POLS), layout.n_batches_per_chunk, layout.n_channels, layout.n_spectra_per_heap, COMPLEX
    for _ in range(CHUNKS):
        present = np.zeros((len(POLS), layout.n_batches_per_chunk, layout.n_pol_substreams), np.uint8)
        recv.Chunk(data=np.zeros(shape, np.int8), present=present, sink=group).recycle()
    for stream, address in zip(group, GROUPS):
        source = [(address, fengines.PORT)]
        base_recv.add_reader(stream, src=source, interface=fengines.LOCAL, ibv=False, comp_vector=-1, buffer_size=1 << 25)
    sensors = base_recv.make_sensors(10.0, [f"{pol}." for pol in POLS])
    for stream in group:
        stream.start()
    chunks, end = [], None
    async for chunk in recv.iter_chunks(data, layout, sensors, TimeConverter(sync_time, rate), POLS):
        with chunk:
            end = end or time.monotonic() + seconds
            chunks.append((chunk.timestamp, chunk.present.copy(), chunk.data.copy()))
        if time.monotonic() > end:
            break
    counted = {}
    for stream in group:
        for name in stream.stats:
            if isinstance(stream.stats[name], int):
                counted[name] = counted.get(name, 0) + stream.stats[name]
    group.stop()
    return chunks, counted


def behind(loopback, folder, backend, output, layout, seconds, rate):
    """What Karoo has sent, and what the receiver makes of it."""
    sync_time = int(time.time()) - 100
    with contextlib.ExitStack() as stack:
        sent = Beams.live(output, fengines.NETS["karoo"]).shape(output)
        stack.callback(sent.end)
        words = [
            environment.program(), "fgpu", f"--backend={backend}", "--log=stderr", "--recv-interface=udp:lo", "--send-interface=udp:lo",
            *fengines.options_at(rate, sync_time), output.option(fengines.NETS["karoo"]), ",".join(fengines.SOURCE),
        ]
        stack.enter_context(network.Program(loopback.name, folder / "beams-karoo", *words)).until("INFO up")
        stack.enter_context(fengines.digitiser(loopback, folder, rate, sync_time))
        chunks, counted = asyncio.run(received(layout, sync_time, rate, seconds))
    # The first chunk and the last may have begun before or end after.
    return sent.found, chunks[1:-1], counted


def held_against(sent, chunks, layout):
    """Of the heaps of chunks: how many there are, lack, differ from what was sent, are flagged wrongly."""
    heaps = missing = differ = wrongly = 0
    channels = layout.n_channels_per_substream
    for timestamp, present, data in chunks:
        for pol, batch, substream in np.ndindex(present.shape):
            wanted = sent.get((timestamp + batch * layout.heap_timestamp_step, substream * channels))
            heaps += 1
            missing += wanted is None
            wrongly += (wanted is None) == bool(present[pol, batch, substream])
            if wanted is not None:
                got = data[pol, batch, substream * channels : (substream + 1) * channels]
                differ += not np.array_equal(got, wanted[:, :, pol])
    return heaps, missing, differ, wrongly


def beams(folder, backends, seconds, rate):
    """Verdicts on what the V-engine's receiver takes of a VLBI output of Karoo's, whole and with packets lost before it."""
    verdicts = []
    output = fengines.outputs_at(rate)[-1]
    layout = recv.Layout(
        sample_bits=8, n_channels=output.channels, n_channels_per_substream=output.channels // output.substreams,
        n_spectra_per_heap=output.spectra, n_batches_per_chunk=BATCHES, heap_timestamp_step=2 * output.channels * 4 * output.spectra,
    )
    for backend, loses in itertools.product(backends, (False, True)):
        what = "1 % lost: what is missing is flagged" if loses else "every heap is taken"
        what = f"V-engine's receiver behind Karoo, {backend}: {what}"
        with network.Loopback() as loopback:
            if loses and not loopback.own:
                # Nothing that others of this machine receive is dropped.
                verdicts.append((what, False, "not run: there is no namespace of the network's own"))
                continue
            if loses:
                subprocess.run(["nft", "-f", "-"], input=LOSS, text=True, check=True)
            sent, chunks, counted = behind(loopback, folder, backend, output, layout, seconds, rate)
        heaps, missing, differ, wrongly = held_against(sent, chunks, layout)
        rejected = {
            name.removeprefix("katgpucbf."): count
            for name, count in counted.items()
            if "bad_" in name or name in ("katgpucbf.metadata_heaps", "incomplete_heaps_evicted", "too_old_heaps")
        }
        found = f"{heaps} heaps of {len(chunks)} chunks, {missing} missing, {wrongly} flagged wrongly, {differ} differ; "
        found += ", ".join(f"{k} {v}" for k, v in rejected.items())
        # A batch needs 17 packets or so: 16 of a hundred are missing.
        lacks = 0.1 < missing / max(heaps, 1) < 0.26 if loses else missing == 0
        held = len(chunks) > 2 and lacks and wrongly == 0 and differ == 0 and not any(rejected.values())
        verdicts.append((what, held, found))
    return verdicts
