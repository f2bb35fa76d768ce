"""karoo shadow beside a running fgpu of katgpucbf's."""

import asyncio
import contextlib
import json
import time

import environment
import fengines
import network

# A picosecond in 2^20 samples of 1712 MHz, in seconds per second.
DRIFT = 1e-12 * 1712e6 / (1 << 20)
CHANNEL = 100
# Behind the gain, values are of some ten counts in all channels.
LEVEL = 0.3
# An equal engine has new delays as often at least, and new gains every third time.
SECONDS = 20


class Beside:
    """An fgpu that takes a digitiser's samples, and shadows of it one after the other."""

    def __init__(self, folder, loopback, backend, rate, outputs):
        self.folder, self.loopback, self.backend, self.rate, self.outputs = folder, loopback, backend, rate, outputs
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        sync_time = int(time.time()) - 100
        self.options = [
            *fengines.options_at(self.rate, sync_time), f"--gain={LEVEL}",
            *[output.option(fengines.NETS["fgpu"]) for output in self.outputs], ",".join(fengines.SOURCE),
        ]
        port = fengines.KATCP["fgpu"]
        words = [*fengines.fgpu(), "--recv-interface=lo", "--send-interface=lo", f"--katcp-port={port}", *self.options]
        self.fgpu = self.stack.enter_context(network.Program(self.loopback.name, self.folder / "shadowed-fgpu", *words))
        heard = fengines.Heaps.live(self.outputs[0], fengines.NETS["fgpu"])

        async def begin():
            client = await fengines.connected(self.fgpu, port)
            self.stack.enter_context(fengines.digitiser(self.loopback, self.folder, self.rate, sync_time))
            await fengines.until(lambda: heard.found, 60, "heaps of fgpu")
            # It keeps all that comes.
            heard.end()
            client.close()
            await client.wait_closed()

        asyncio.run(begin())
        return self

    def __exit__(self, *_):
        self.stack.close()

    def shadow(self, name, steer, *more):
        """What a shadow reports of an engine that is steered meanwhile, and its log."""
        words = [
            environment.program(), "shadow", f"{fengines.LOCAL}:{fengines.KATCP['fgpu']}", "--json", "--report-interval=1",
            f"--backend={self.backend}", "--recv-interface=udp:lo", "--send-interface=lo", *more, *self.options,
        ]
        log = self.folder / f"shadow-{name}"
        with network.Program(self.loopback.name, log, *words) as program:
            # It compares, and has not differed.
            program.until(" compared ", 60)

            async def steered():
                client = await fengines.connected(self.fgpu, fengines.KATCP["fgpu"])
                await steer(client, program)
                client.close()
                await client.wait_closed()

            asyncio.run(steered())
            code = program.end()
        text = program.text()
        return code, json.loads(text[text.index("\n{\n") :].split("\nerror")[0]) if "\n{\n" in text else {}


async def told(program, what):
    """Seconds until the shadow tells a difference."""
    begun = time.monotonic()
    await asyncio.to_thread(network.wait, lambda: "differs: " in program.text(), 60, what)
    return time.monotonic() - begun


async def even(client, outputs):
    """All outputs as they begin, once the engine's sensors say so: what they say later is a change for the next shadow."""
    for output in outputs:
        await client.request("gain-all", output.name, LEVEL)
        await client.request("delays", output.name, time.time(), "0,0:0,0", "0,0:0,0")
    for output in outputs:
        for pol in (0, 1):
            value = b""
            while not value.endswith(b", 0.0, 0.0, 0.0, 0.0)"):
                _, (inform,) = await client.request("sensor-value", f"{output.name}.input{pol}.delay")
                value = bytes(inform.arguments[4])
                await asyncio.sleep(0.1)


def following(outputs, seconds):
    """Steers all outputs for a while."""
    changes = max(5, round(seconds / SECONDS))

    async def steer(client, _):
        for number in range(changes):
            turn = number % 5
            for output in outputs:
                delays = f"{(turn - 2) * 1e-7},{turn * 1e-9}:0.1,0.5", f"-3e-7,0:{turn / 10},0"
                await client.request("delays", output.name, time.time() + 1, *delays)
                if number % 3 == 1:
                    gains = [f"{LEVEL * (1 + 0.1 * ((k + number) % 5)):.6f}" for k in range(output.channels)]
                    await client.request("gain", output.name, number % 2, *gains)
            await asyncio.sleep(seconds / changes)
        await even(client, outputs)

    return steer


def differing(outputs, waited, words):
    """One request that the shadow does not follow, and what comes of it."""
    async def steer(client, program):
        request = words()
        await client.request(*request)
        waited.append(await told(program, request[0]))
        await even(client, outputs)

    return steer


def equal(backend, beside, dither, seconds):
    """Nothing is told of an equal engine."""
    code, report = beside.shadow("equal", following(beside.outputs, seconds))
    streams = report["streams"]

    def total(name):
        return sum(stream[name] for stream in streams)

    found = (
        f"{total('samples')} samples of {len(streams)} outputs, dither {dither}, {total('samples_unequal')} unequal; judged {total('windows_judged')} "
        f"times, excused {total('windows_excused')}; {report['gain_changes']} changes of gains and {report['delay_changes']} of delays followed; "
        f"{len(report['differences'])} differences"
    )
    judged = all(stream["windows_judged"] > 0 for stream in streams)
    held = code == 0 and judged and report["gain_changes"] > 0 and report["delay_changes"] > 0
    return f"shadow of fgpu, {backend}: nothing is told of an equal engine", held, found


def different(backend, beside, what, guess, of, words):
    """What differs is told, with its stream, its input and its channels."""
    waited, output = [], beside.outputs[0]
    code, report = beside.shadow(guess, differing(beside.outputs, waited, words), "--no-follow")
    differences = report["differences"]
    first = differences[0] if differences else {}
    channels = [(part["first"], part["last"]) for part in first.get("channels", [])]
    at = first and (first["stream"], first["pol"], first["guess"]) == (output.name, 0, guess)
    held = code == 1 and bool(at) and of(channels) and waited[0] < 60
    found = f"told after {waited[0]:.1f} s: " + ", ".join(
        f"{name} {first.get(name)}" for name in ("stream", "pol", "guess", "channels", "ratio", "delay_ps", "from")
    )
    return f"shadow of fgpu, {backend}: {what} is told", held, found


def shadow(folder, backends, seconds, rate):
    """Verdicts on shadows of an engine that is equal, of one with another gain, and of one with another delay."""
    verdicts = []
    # On a GPU each draws dither of its own.
    dither = "uniform" if fengines.has_gpu() else "none"
    outputs = fengines.outputs_at(rate, dither)
    name, channels = outputs[0].name, outputs[0].channels
    gains = [f"{LEVEL * (1.01 if channel == CHANNEL else 1)}" for channel in range(channels)]
    for backend in backends:
        with network.Loopback() as loopback, Beside(folder, loopback, backend, rate, outputs) as beside:
            verdicts.append(equal(backend, beside, dither, seconds))
            one = [(CHANNEL, CHANNEL)]

            def gain():
                return "gain", name, 0, *gains

            def delay():
                return "delays", name, time.time(), f"0,{DRIFT}:0,0", "0,0:0,0"

            verdicts.append(different(backend, beside, "1 % of gain in one channel", "gain", lambda of: of == one, gain))
            verdicts.append(different(backend, beside, "1 ps in 2^20 samples of 1712 MHz", "delay", bool, delay))
    return verdicts
