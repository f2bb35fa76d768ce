"""Reads a scrape on standard input with Prometheus's own parser, and prints it as JSON: {name: [type, samples]}.

A value that JSON cannot write (NaN, infinity) is null.
"""

import json
import math
import sys

from prometheus_client.parser import text_string_to_metric_families

families = {}
for family in text_string_to_metric_families(sys.stdin.read()):
    samples = [
        [sample.name, sample.labels, sample.value if math.isfinite(sample.value) else None]
        for sample in family.samples
    ]
    assert family.name not in families, f"{family.name} comes twice"
    families[family.name] = [family.type, samples]
json.dump(families, sys.stdout)
