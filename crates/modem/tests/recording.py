"""Reads a SigMF recording with SigMF's own library: for tests/beside_numpy.rs."""

import sys

import sigmf

recording = sigmf.fromfile(sys.argv[1])
recording.validate()
samples = recording.read_samples()
label = recording.get_annotations()[0]["core:label"]
print(recording.sample_rate, len(samples), abs(samples[24]), label)
