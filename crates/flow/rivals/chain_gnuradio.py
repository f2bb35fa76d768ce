#!/usr/bin/python3
"""A chain of kernels in GNU Radio 3.10, as benches/speed measures it in flow.

chain_gnuradio.py STAGES SAMPLES COST CORES: prints millions of samples a second. Each kernel is one
multiply_const_ff, which leaves out the addition, in GNU Radio's favour; so it takes part only where
COST is 1. It has a thread for each block, as is its way, on the first CORES CPUs.
"""

import os
import sys
import time

from gnuradio import blocks, gr

stages, samples, cost, cores = map(int, sys.argv[1:5])
if cost != 1:
    sys.exit()
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
top = gr.top_block()
chain = [blocks.null_source(gr.sizeof_float), blocks.head(gr.sizeof_float, samples)]
chain += [blocks.multiply_const_ff(0.999) for _ in range(stages)]
chain.append(blocks.null_sink(gr.sizeof_float))
top.connect(*chain)
begin = time.monotonic()
top.run()
print(f"{samples / (time.monotonic() - begin) / 1e6:.3f}")
