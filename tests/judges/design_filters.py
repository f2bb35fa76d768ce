#!/usr/bin/env python3
"""Design narrowband outputs' filters with SciPy.

usage: design_filters.py SPECS

SPECS is a JSON list of {taps, subsampling, weight_pass, pass_fraction}. Prints a list of lists of coefficients; null where
SciPy does not converge.
"""

import json
import sys

import numpy as np
import scipy.signal


def design(taps, subsampling, weight_pass, pass_fraction):
    """As katgpucbf designs it. Frequencies in units of the subsampled rate."""
    if pass_fraction is not None:
        edges = [0, pass_fraction / 2, 1 - pass_fraction / 2, subsampling / 2]
    else:
        lows = np.arange(0.75, subsampling / 2)
        stops = np.stack([lows, np.minimum(lows + 0.5, subsampling / 2)], axis=-1)
        edges = [0, 0.25, *stops.flat]
    bands = len(edges) // 2
    try:
        taps = scipy.signal.remez(
            taps,
            edges,
            [1.0] + [0.0] * (bands - 1),
            weight=[weight_pass] + [1.0] * (bands - 1),
            maxiter=1000,
            fs=subsampling,
        )
    except ValueError:
        return None
    return (taps * np.sqrt(subsampling)).tolist()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(json.dumps([design(**spec) for spec in json.loads(sys.argv[1])]))
