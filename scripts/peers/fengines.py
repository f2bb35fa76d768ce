"""katgpucbf's fgpu and Karoo side by side: what both make of the same input, value by value."""

import asyncio
import contextlib
import dataclasses
import logging
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import aiokatcp
import environment
import network
import numpy as np
import spead2
import spead2.recv

PORT, LOCAL = 7148, "127.0.0.1"
# Items of an F-engine's heap.
TIMESTAMP, FENG_ID, CHANNEL, VALUES = 0x1600, 0x4101, 0x4103, 0x4300
# Of ten thousand values differ at most so many, by what computes in Karoo. Single precision takes values near a tie to either
# side; kernels on a GPU also keep three bytes of each number between two passes.
FEW = {"cpu": 0.1, "cuda": 1.0}
HERE = pathlib.Path(__file__).resolve().parent
# A client says of each attempt to connect that it has failed, and a socket that its buffer is smaller than was asked for.
for chatty in ("aiokatcp", "spead2"):
    logging.getLogger(chatty).setLevel(logging.CRITICAL)


@dataclasses.dataclass
class Output:
    """What an output is, in katgpucbf's words."""

    kind: str
    name: str
    channels: int
    keys: str = ""
    dither: str = "none"
    spectra: int = 64
    substreams: int = 4

    def option(self, net):
        """As both take it, sent to groups 239.NET.…"""
        jones = self.channels * self.spectra
        keys = f",{self.keys}" if self.keys else ""
        first = f"{self.group(net, 0)}+{self.substreams - 1}:{PORT}"
        return f"--{self.kind}=name={self.name},channels={self.channels},jones_per_batch={jones},dither={self.dither}{keys},dst={first}"

    def group(self, net, substream):
        # Outputs of an engine have groups of their own.
        return f"239.{net}.{sum(self.name.encode()) % 251}.{1 + substream}"

    def groups(self, net):
        return [self.group(net, number) for number in range(self.substreams)]


class Heaps:
    """Heaps of an output, by timestamp and first channel, as spead2 puts them together."""

    def __init__(self, add_readers):
        config = spead2.recv.StreamConfig(max_heaps=512, stop_on_stop_item=False)
        self.stream = spead2.recv.Stream(spead2.ThreadPool(), config, spead2.recv.RingStreamConfig(heaps=4096))
        self.found, self.others = {}, set()
        add_readers(self.stream)
        self.thread = threading.Thread(target=self.take, daemon=True)
        self.thread.start()

    @classmethod
    def live(cls, output, net):
        def add(stream):
            for group in output.groups(net):
                stream.add_udp_reader(group, PORT, max_size=9000, buffer_size=1 << 25, interface_address=LOCAL)

        return cls(add)

    @classmethod
    def captured(cls, output, net, path):
        """All that a capture has."""
        groups = " or ".join(f"dst host {group}" for group in output.groups(net))
        heaps = cls(lambda stream: stream.add_udp_pcap_file_reader(str(path), f"udp and dst port {PORT} and ({groups})"))
        heaps.thread.join()
        return heaps

    def take(self):
        for heap in self.stream:
            items = {item.id: item for item in heap.get_items()}
            if VALUES not in items:
                continue
            if items[FENG_ID].immediate_value != FENG:
                self.others.add(items[FENG_ID].immediate_value)
            key = (items[TIMESTAMP].immediate_value, items[CHANNEL].immediate_value)
            self.found[key] = bytes(items[VALUES])

    def keys(self):
        return set(self.found)

    def end(self):
        self.stream.stop()
        self.thread.join()


@dataclasses.dataclass
class Figures:
    """How far the values of two engines agree."""

    batches: int = 0
    values: int = 0
    differ: int = 0
    greatest: int = 0
    lone: tuple = (0, 0)
    excused: int = 0

    def __str__(self):
        return f"{self.batches:8} {self.values:12} {self.differ:8} {self.greatest:8}"

    def agree(self, backend):
        return self.values > 0 and self.greatest <= 1 and 1e4 * self.differ <= FEW[backend] * self.values


HEADING = f"{'batches':>8} {'values':>12} {'differ':>8} {'greatest':>8}"


def parts(data, bits):
    """Real and imaginary parts."""
    if bits == 8:
        return np.frombuffer(data, np.int8).astype(np.int16)
    both = np.frombuffer(data, np.uint8)
    return (np.stack([both >> 4, both & 15]) ^ 8).astype(np.int16) - 8


def compare(theirs, ours, bits=8, span=None, excused=()):
    """Holds heaps against each other, those of timestamps in `span` if it is given. Batches of an `excused` range are left out."""
    figures = Figures()

    def inside(timestamp):
        return span is None or span[0] <= timestamp <= span[1]

    mine, other = ({key for key in heaps if inside(key[0])} for heaps in (ours, theirs))
    figures.lone = (len({key[0] for key in other - mine}), len({key[0] for key in mine - other}))
    batches, left_out = set(), set()
    for key in mine & other:
        if any(start <= key[0] < end for start, end in excused):
            left_out.add(key[0])
            continue
        a, b = parts(theirs[key], bits), parts(ours[key], bits)
        apart = np.abs(a - b)
        batches.add(key[0])
        figures.values += apart.size
        figures.differ += int(np.count_nonzero(apart))
        figures.greatest = max(figures.greatest, int(apart.max()))
    figures.batches, figures.excused = len(batches), len(left_out)
    return figures


FENG = 3
GAINS = ["--feng-id", str(FENG), "--array-size", "64"]
SOURCE = ["239.102.0.64+7:7148", "239.102.1.64+7:7148"]


def has_gpu():
    return os.path.exists("/dev/nvidiactl")


def fgpu():
    """The command of katgpucbf's engine: on a GPU, or where there is none, by OpenCL."""
    if has_gpu():
        # Kernels take what katsdpsigproc's tests take, so that they are not tuned for minutes.
        quickly = "from katsdpsigproc import tune; tune.autotuner_impl = tune.stub_autotuner"
        return [sys.executable, "-W", "ignore", "-c", f"{quickly}; from katgpucbf.fgpu.main import main; main()"]
    return [sys.executable, "-W", "ignore", HERE / "fgpu_by_opencl.py"]


def device():
    """What computes in katgpucbf's engine, in words."""
    if has_gpu():
        named = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
        return named.stdout.strip()
    (name,) = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[:1]
    return f"{name}, by OpenCL"


WIDE = "name={},channels={}"
NARROW = "decimation=8,centre_frequency=3.3e6"
VLBI = "taps=1,w_cutoff=0,window_function=rect,decimation=8,centre_frequency=4.6875e6,pass_bandwidth=1.3e6"


def wide(channels, keys="", **more):
    return Output("wideband", "w", channels, keys, **more)


def narrow(channels, keys, name="n", **more):
    return Output("narrowband", name, channels, keys, **more)


# Name, bits of a digitiser's sample and of an output's, gain, outputs.
CASES = [
    ("256 channels, 12 bits, 4 taps, rect", 12, 8, 0.05, [wide(256, "taps=4,w_cutoff=0.9,window_function=rect")]),
    ("512 channels, 8 bits", 8, 8, 0.8, [wide(512)]),
    ("1024 channels, 10 bits", 10, 8, 0.2, [wide(1024)]),
    ("4096 channels, 10 bits", 10, 8, 0.2, [wide(4096)]),
    ("1024 channels, 4 bits out", 10, 4, 0.05, [wide(1024)]),
    ("narrowband, an eighth", 10, 8, 0.2, [narrow(256, NARROW)]),
    ("narrowband, a 32nd", 10, 8, 0.2, [narrow(128, "decimation=32,centre_frequency=8.2e6", spectra=32)]),
    ("narrowband with a pass band", 10, 8, 0.2, [narrow(256, f"{NARROW},pass_bandwidth=1e6")]),
    ("VLBI", 10, 8, 0.2, [narrow(64, VLBI, spectra=32)]),
    (
        "wideband, narrowband and VLBI together", 10, 8, 0.2,
        # All of an engine's outputs have to divide the same chunks: so VLBI has a quarter of the band.
        [wide(1024), narrow(256, NARROW, "n"), narrow(64, VLBI.replace("decimation=8", "decimation=4"), "v", spectra=32)],
    ),
]
RATE_OF_CAPTURES, SYNC_TIME, SAMPLES = 25e6, 1763700000, 1 << 23
SIGNALS = "cw(0.15, 3.1e6) + cw(0.05, 8.2371e6) + wgn(0.06, 11); cw(0.1, 5.55e6) + wgn(0.05, 12);"


def capture(folder, bits):
    """A capture of a digitiser with samples of so many bits, made once."""
    path = folder / f"digitiser-{bits}.pcap"
    if not path.exists():
        command = [
            environment.program(), "dsim", "--output", path, f"--adc-sample-rate={RATE_OF_CAPTURES}", f"--samples={SAMPLES}",
            f"--period={SAMPLES}", f"--sample-bits={bits}", f"--first-timestamp={1 << 28}", f"--signals={SIGNALS}",
        ]
        subprocess.run(command, check=True, capture_output=True)
    return path


def replayed(folder, path, outputs, options, backend):
    """What Karoo makes of a capture."""
    sent = folder / "karoo.pcap"
    command = [environment.program(), "replay", path, f"--output={sent}", f"--backend={backend}", *options]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{' '.join(map(str, command))}:\n{ran.stderr}")
    heaps = [Heaps.captured(output, 9, sent).found for output in outputs]
    sent.unlink()
    return heaps


def captures(folder, backends):
    """Verdicts on captures: every batch that Karoo makes is made by fgpu too, with the same values."""
    verdicts = []
    print(f"   on captures of {SAMPLES} samples, without dither; fgpu: {device()}")
    print(f"   {'':44} {'':8} {HEADING}")
    with network.Loopback() as loopback:
        for name, bits, bits_out, gain, outputs in CASES:
            path = capture(folder, bits)
            options = [
                f"--adc-sample-rate={RATE_OF_CAPTURES}", f"--sync-time={SYNC_TIME}", *GAINS, f"--gain={gain}",
                f"--dig-sample-bits={bits}", f"--send-sample-bits={bits_out}", "--max-delay-diff=65536",
                f"--recv-chunk-samples={1 << 21}", f"--send-chunk-jones={1 << 19}", *[output.option(9) for output in outputs],
            ]
            ours = {backend: replayed(folder, path, outputs, options, backend) for backend in backends}
            received = [Heaps.live(output, 9) for output in outputs]
            command = [*fgpu(), "--send-interface=lo", "--recv-interface=lo", "--katcp-port=0", *options, path]
            log = re.sub(r"\W+", "-", f"fgpu-{name}")
            with network.Program(loopback.name, folder / log, *command) as peer:
                wanted = [set(heaps) for heaps in ours[backends[0]]]

                def all_came():
                    return peer.child.poll() is not None or all(w <= r.keys() for w, r in zip(wanted, received))

                network.wait(all_came, 120, f"{name}: as many heaps of fgpu as of Karoo")
                network.drained(loopback.name)
            for heaps in received:
                heaps.end()
            for backend in backends:
                for output, heaps, karoo in zip(outputs, received, ours[backend]):
                    figures = compare(heaps.found, karoo, bits_out)
                    of = name if len(outputs) == 1 else f"{name}: {output.name}"
                    print(f"   {of:44} {backend:8} {figures}", flush=True)
                    lone = f"; of fgpu alone {figures.lone[0]}, of Karoo alone {figures.lone[1]} batches"
                    held = figures.agree(backend) and figures.lone == (0, 0)
                    verdicts.append((f"{of}, {backend}: the same batches and values", held, f"{figures.batches} batches{lone}"))
    return verdicts


KATCP = {"fgpu": 7401, "karoo": 7402}
NETS = {"fgpu": 9, "karoo": 10}
OUTPUTS = [
    wide(1024),
    narrow(256, "decimation=8,centre_frequency={centre}"),
    narrow(64, "taps=1,w_cutoff=0,window_function=rect,decimation=4,centre_frequency={centre},pass_bandwidth={pass_band}", "v"),
]


def outputs_at(rate, dither="none"):
    """Outputs of a live engine at this sample rate: wideband, narrowband, VLBI."""
    bands = {"centre": 0.1375 * rate, "pass_band": 0.6 * rate / 8}
    return [dataclasses.replace(output, keys=output.keys.format(**bands), dither=dither) for output in OUTPUTS]


def options_at(rate, sync_time):
    """What both engines take."""
    return [
        f"--adc-sample-rate={rate}", f"--sync-time={sync_time}", *GAINS, "--gain=0.2", "--max-delay-diff=65536",
        # A batch of wideband a chunk: fgpu ends if its chunks do not begin at multiples of theirs, as with a delay at the start.
        f"--recv-chunk-samples={1 << 18}", f"--send-chunk-jones={1 << 16}",
    ]


@contextlib.contextmanager
def digitiser(loopback, folder, rate, sync_time):
    """katgpucbf's digitiser."""
    command = "from katgpucbf.dsim.main import main; main()"
    a, b, c = (f"{share * rate:.0f}" for share in (0.129, 0.319, 0.15))
    signals = f"cw(0.15, {a}) + wgn(0.06, 11); cw(0.1, {b}) + cw(0.1, {c}) + wgn(0.05, 12);"
    words = [
        sys.executable, "-W", "ignore", "-c", command, "--interface=lo", f"--adc-sample-rate={rate}", f"--sync-time={sync_time}",
        "--period=262144", "--katcp-port=7403", f"--signals={signals}", *SOURCE,
    ]
    with network.Program(loopback.name, folder / "dsim", *words) as program:
        def sends():
            busily(program.child.pid)
            return "Starting transmission" in program.text() or program.child.poll() is not None

        if not network.wait(sends, 120, "the digitiser's signals") or program.child.poll() is not None:
            sys.exit(f"{program.log}:\n{program.text()}")
        yield program


def busily(pid):
    """Has the process that makes a digitiser's signals run beside others: it would wait for an idle machine."""
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            for thread in pathlib.Path(f"/proc/{child}/task").glob("*"):
                with contextlib.suppress(OSError):
                    if os.sched_getscheduler(int(thread.name)) == os.SCHED_IDLE:
                        os.sched_setscheduler(int(thread.name), os.SCHED_OTHER, os.sched_param(0))


async def connected(program, port):
    """A client of the engine that listens there, once it does."""
    while True:
        if program.child.poll() is not None:
            sys.exit(f"{program.log}: ended:\n{program.text()}")
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            return await asyncio.wait_for(aiokatcp.Client.connect(LOCAL, port), 2)
        await asyncio.sleep(0.1)


async def until(happened, seconds, what):
    """Waits for something to happen; ends the script if it does not."""
    if not await asyncio.to_thread(network.wait, happened, seconds, what):
        sys.exit(f"nothing of: {what}")


def gains(channels, phase):
    """A gain for each channel: another level and phase in each."""
    k = np.arange(channels)
    values = 0.2 * (1 + 0.5 * np.sin(k / 50 + phase)) + 0.04j * np.cos(k / 9)
    return [f"{value.real:.6f}{value.imag:+.6f}j" for value in values]


async def steady(clients):
    """From which timestamp on both engines have all that they were asked for."""
    found = []
    for client in clients:
        _, informs = await client.request("sensor-value", "steady-state-timestamp")
        found.append(int(informs[0].arguments[4]))
    return max(found)


async def steer(clients, received, outputs, start_digitiser, seconds, rate):
    """Steers both engines alike. Returns times in which they let new gains begin, by output."""
    async def both(*words):
        await asyncio.gather(*(client.request(*words) for client in clients))

    # All channels, both inputs and delays before the first sample.
    for output in outputs:
        for pol in (0, 1):
            await both("gain", output.name, pol, *gains(output.channels, pol))
        await both("delays", output.name, time.time(), f"{2.6 / rate},1e-9:0.4,0.5", f"{-6.1 / rate},0:0,-0.2")
    start_digitiser()
    await until(lambda: all(heaps.found for of in received for heaps in of), 60, "heaps of both engines")
    # Then delays at times to come, of each output others, and once gains, which begin at once.
    begun, number, changes = time.time(), 0, {output.name: [] for output in outputs}
    while time.time() < begun + seconds:
        at = time.time() + 1
        for index, output in enumerate(outputs):
            number += 1
            delay, grows = (-1) ** number * (0.8 + 2.4 * number) / rate, (-1) ** index * 2e-9 * number
            await both("delays", output.name, at, f"{delay},{grows}:{0.3 * number},0.7", f"{-2 * delay},0:0,{-0.1 * number}")
        await asyncio.sleep(seconds / 4)
        for index, output in enumerate(outputs if not changes[outputs[0].name] else []):
            newest = min(max(heaps.keys())[0] for heaps in (of[index] for of in received))
            await both("gain", output.name, number % 2, *gains(output.channels, number))
            changes[output.name].append((newest, await steady(clients)))
    return changes


def live(folder, backends, seconds, rate):
    """Verdicts on engines side by side, behind katgpucbf's digitiser and steered by the same requests."""
    verdicts = []
    print(f"   live at {rate / 1e6:g} Msample/s for {seconds:g} s, without dither; fgpu: {device()}")
    print(f"   {'':44} {'':8} {HEADING}")
    outputs = outputs_at(rate)
    for backend in backends:
        sync_time = int(time.time()) - 100
        options = options_at(rate, sync_time)
        with network.Loopback() as loopback, contextlib.ExitStack() as stack:
            def run(name, *words, loopback=loopback, stack=stack):
                return stack.enter_context(network.Program(loopback.name, folder / name, *words))

            sent = [[Heaps.live(output, NETS[name]) for output in outputs] for name in ("fgpu", "karoo")]
            engines = {
                "fgpu": [*fgpu(), "--recv-interface=lo", "--send-interface=lo"],
                "karoo": [environment.program(), "fgpu", f"--backend={backend}", "--recv-interface=udp:lo", "--send-interface=udp:lo"],
            }
            programs = {
                name: run(
                    f"live-{name}", *command, f"--katcp-port={KATCP[name]}", *options,
                    *[output.option(NETS[name]) for output in outputs], ",".join(SOURCE),
                )
                for name, command in engines.items()
            }

            async def both(programs=programs, sent=sent, loopback=loopback, sync_time=sync_time):
                clients = [await connected(programs[name], KATCP[name]) for name in ("fgpu", "karoo")]
                start = contextlib.ExitStack()
                with start:
                    changes = await steer(
                        clients, sent, outputs,
                        lambda: start.enter_context(digitiser(loopback, folder, rate, sync_time)), seconds, rate,
                    )
                for client in clients:
                    client.close()
                    await client.wait_closed()
                return changes

            changes = asyncio.run(both())
            network.drained(loopback.name)
        for of in sent:
            for heaps in of:
                heaps.end()
        for output, theirs, ours in zip(outputs, *sent):
            ends = [(min(heaps.keys())[0], max(heaps.keys())[0]) for heaps in (theirs, ours)]
            # The last batches may have lost what the other engine still had room for.
            span = max(first for first, _ in ends), min(last for _, last in ends)
            figures = compare(theirs.found, ours.found, 8, span, changes[output.name])
            of = f"{output.name}: {output.kind}, {output.channels} channels"
            print(f"   {of:44} {backend:8} {figures}", flush=True)
            lone = f"of fgpu alone {figures.lone[0]}, of Karoo alone {figures.lone[1]}, while gains change {figures.excused} batches"
            held = figures.agree(backend) and figures.lone == (0, 0)
            verdicts.append((f"live, {of}, {backend}: the same batches and values", held, f"{figures.batches} batches; {lone}"))
    return verdicts
