"""Tasks as MeerKAT's controller makes them: command line, environment and container of each engine.

Its own sources make them (katsdpcontroller, which KAROO_KATSDPCONTROLLER names): the generator from a
product's configuration, the scheduler for an agent that offers what it asks for.
"""

import asyncio
import base64
import json
import os
import sys
import types
from dataclasses import dataclass

# pymesos speaks to Mesos through it; nothing here does.
for name in ("http_parser", "http_parser.http"):
    sys.modules.setdefault(name, types.ModuleType(name))
sys.modules["http_parser.http"].HttpParser = object

from addict import Dict  # noqa: E402
from aiokatcp import SensorSet  # noqa: E402
from katsdpcontroller import generator, product_config, scheduler  # noqa: E402

VERSION = "4.9"
# Rate of the digitiser and centre of the band, of MeerKAT's bands.
BANDS = {"u": (1088e6, 816e6), "l": (1712e6, 1284e6), "s": (1750e6, 2625e6)}
# Of the agent: its name, its interface with its address, its free ports.
HOST, INTERFACE, ADDRESS = "agent.invalid", "k0", "10.77.0.1"
PORTS = [(7147, 7167)]


@dataclass
class Task:
    """What the controller asks Mesos to start."""

    name: str
    command: list
    environment: dict
    parameters: list
    memory: int
    renames: dict
    logical: object

    def values(self, key):
        """Of the parameters of docker."""
        return [parameter["value"] for parameter in self.parameters if parameter["key"] == key]


class Product:
    """The part of a subarray product that tasks speak to."""

    subarray_product_id = "array_1"

    def add_sensor(self, sensor):
        pass

    def notify_sensors_changed(self):
        pass


class Resources:
    """Multicast groups, as the master controller gives them."""

    def __init__(self):
        self.used = 0

    async def get_multicast_groups(self, count):
        first = self.used
        self.used += count
        address = f"239.192.{first >> 8}.{first & 255}"
        return address if count == 1 else f"{address}+{count - 1}"

    @staticmethod
    async def get_port():
        return 7148


def digitisers(band, antennas):
    """Two streams of each antenna, simulated: their sync time is fixed then."""
    rate, centre = BANDS[band]
    return {
        f"m{antenna:03}{pol}": {
            "type": "sim.dig.baseband_voltage",
            "band": band,
            "adc_sample_rate": rate,
            "centre_frequency": centre,
            "antenna": f"m{antenna:03}, 0:0:0, 0:0:0, 0, 0",
        }
        for antenna in range(antennas)
        for pol in "vh"
    }


def configuration(band, antennas, *streams, ibverbs=True, sample_rate=None):
    """A product's configuration with these antenna-channelised-voltage streams."""
    outputs = digitisers(band, antennas)
    if sample_rate is not None:
        for digitiser in outputs.values():
            digitiser["adc_sample_rate"] = sample_rate
    sources = list(outputs)
    for number, stream in enumerate(streams):
        outputs[f"acv{number}"] = {"type": "gpucbf.antenna_channelised_voltage", "src_streams": sources, **stream}
    develop = {} if ibverbs else {"disable_ibverbs": True}
    return {"version": VERSION, "config": {"develop": develop}, "outputs": outputs}


def wide(channels, **more):
    return {"n_chans": channels, **more}


def narrow(channels, band, decimation, vlbi=False, **more):
    rate, _ = BANDS[band]
    narrowband = {"decimation_factor": decimation, "centre_frequency": rate / 4 + 1.1e6}
    if vlbi:
        # Sixty parts in a hundred of the band, as 64 MHz of 107.
        narrowband["vlbi"] = {"pass_bandwidth": 0.6 * rate / 2 / decimation}
    return {"n_chans": channels, "narrowband": narrowband, **more}


def ranges(values):
    return [Dict(begin=begin, end=end) for begin, end in values]


def agent(interface, cores, ports):
    """An agent that offers an interface of this machine, CPUs and a GPU."""
    offer = Dict()
    offer.id.value = offer.framework_id.value = offer.agent_id.value = "agent"
    offer.allocation_info.role = "default"
    offer.hostname, offer.address = HOST, ADDRESS
    scalars = {
        "cpus": 64.0,
        "mem": 1e6,
        "disk": 1e6,
        "katsdpcontroller.gpu.0.compute": 16.0,
        "katsdpcontroller.gpu.0.mem": 1e6,
        "katsdpcontroller.interface.0.bandwidth_in": 1e12,
        "katsdpcontroller.interface.0.bandwidth_out": 1e12,
    }
    offer.resources = []
    for name, value in scalars.items():
        offer.resources.append(Dict(name=name, type="SCALAR", scalar=Dict(value=value)))
    for name, value in {"cores": [(core, core) for core in cores], "ports": ports}.items():
        offer.resources.append(Dict(name=name, type="RANGES", ranges=Dict(range=ranges(value))))
    for resource in offer.resources:
        resource.allocation_info.role = "default"
    attributes = {
        "interfaces": [
            {"name": interface, "network": "gpucbf", "ipv4_address": ADDRESS, "infiniband_devices": ["/dev/infiniband/uverbs0"]}
        ],
        "infiniband_devices": ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"],
        "gpus": [{"name": "GPU", "compute_capability": [9, 0], "uuid": "GPU-0"}],
        "numa": [list(cores)],
    }
    offer.attributes = [
        Dict(
            name=f"katsdpcontroller.{name}",
            type="TEXT",
            text=Dict(value=base64.urlsafe_b64encode(json.dumps(value).encode())),
        )
        for name, value in attributes.items()
    ]
    return scheduler.Agent([offer])


async def image(name):
    return scheduler.Image(registry="registry.invalid", repo=name, tag="latest")


def tasks(config, collector, which, cpus):
    """Those of the F-engines that a configuration makes, and that are asked for by number.

    A machine with fewer CPUs than the controller gives has the last ones share the last.
    """
    # The scheduler looks there whether logs are collected.
    os.environ["KATSDP_LOG_GELF_ADDRESS"] = collector
    try:
        return asyncio.run(resolved(config, which, cpus))
    finally:
        del os.environ["KATSDP_LOG_GELF_ADDRESS"]


async def resolved(config, which, cpus):
    parsed = await product_config.Configuration.from_config(config)
    logical = generator.build_logical_graph(parsed, config, SensorSet())
    product = Product()
    resolver = types.SimpleNamespace(
        image_resolver=image,
        task_id_allocator=lambda: "task-0",
        http_url="http://controller.invalid/",
        service_overrides={},
        s3_config={},
        telstate=None,
        resources=Resources(),
        localhost=False,
    )
    engines = [node for node in logical if isinstance(node, scheduler.LogicalTask) and node.name.startswith("f.")]
    engines = [node for number, node in enumerate(engines) if which(number, len(engines))]
    multicasts = [node for node in logical if isinstance(node, generator.LogicalMulticast)]
    made = {node: node.physical_factory(node, None, product, None) for node in engines + multicasts}
    graph = scheduler.networkx.relabel_nodes(logical.subgraph(made), made)
    for node in multicasts:
        await made[node].resolve(resolver, graph)
    found = []
    for node in engines:
        physical = made[node]
        # Each engine has the machine for itself.
        physical.allocate(agent(INTERFACE, range(len(node.cores)), PORTS).allocate(node))
        own = [cpus[min(number, len(cpus) - 1)] for number in range(len(node.cores))]
        physical.cores = {name: own[core] for name, core in physical.cores.items()}
        await physical.resolve(resolver, graph)
        command = physical.taskinfo.command
        for parameter in physical.taskinfo.container.docker.parameters:
            if parameter["key"] == "cpuset-cpus":
                parameter["value"] = ",".join(map(str, sorted(set(own))))
        found.append(
            Task(
                name=node.name,
                command=[command.value, *command.arguments],
                environment={variable["name"]: variable["value"] for variable in command.environment.variables},
                parameters=physical.taskinfo.container.docker.parameters,
                memory=int(node.mem),
                renames=node.sensor_renames,
                logical=node,
            )
        )
    return found
