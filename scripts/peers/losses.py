"""Packets of a digitiser that are lost on purpose: which, by a seed, and which batches lack them."""

import bisect
import json
import random
import subprocess

import network

# Samples of a packet, and how many packets of a hundred are lost.
SAMPLES, PERCENT = 4096, 1
# The identifier of a timestamp in an item pointer whose value is in it.
TIMESTAMP = 0x9600 << 48
# Bits in front of it: the header of UDP, that of SPEAD, and the four items that each packet begins with.
OFFSET = 64 + 64 + 4 * 64
PORT = 7148


class Plan:
    """Which packets of each polarisation are lost, from a timestamp on for so many samples."""

    def __init__(self, seed, first, samples, sources):
        dice = random.Random(seed)
        packets = range(first // SAMPLES, (first + samples) // SAMPLES)
        self.sources = sources
        self.lost = [[SAMPLES * packet for packet in packets if dice.randrange(100) < PERCENT] for _ in sources]

    def apply(self, namespace):
        """Has the kernel drop these packets where they come into the namespace, and count them."""
        rules = "".join(
            f"    ip daddr {source} udp dport {PORT} @th,{OFFSET},64 {{ {', '.join(hex(TIMESTAMP | t) for t in lost)} }} counter drop\n"
            for source, lost in zip(self.sources, self.lost)
        )
        text = f"table ip loss {{\n  chain loss {{\n    type filter hook prerouting priority 0;\n{rules}  }}\n}}\n"
        subprocess.run([*network.within(namespace), "nft", "-f", "-"], input=text, text=True, check=True)

    @staticmethod
    def dropped(namespace):
        """How many packets the kernel has dropped by the plan."""
        command = [*network.within(namespace), "nft", "-j", "list", "table", "ip", "loss"]
        listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        rules = (entry["rule"]["expr"] for entry in listed["nftables"] if "rule" in entry)
        return sum(part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)

    def within(self, start, samples):
        """How many lost packets have any of these samples."""
        begin = start // SAMPLES * SAMPLES
        return sum(bisect.bisect_left(lost, start + samples) - bisect.bisect_left(lost, begin) for lost in self.lost)
