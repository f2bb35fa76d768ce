"""A frame's samples by numpy, from the waveform's definition alone: for tests/beside_numpy.rs.

Writes complex128 samples of a frame whose payload byte i is (7 i + 3) mod 256, with the header
fields 5, to standard output."""

import sys
import zlib

import numpy as np

BITS = {"bpsk": 1, "qpsk": 2, "qam16": 4, "qam64": 6, "qam256": 8}
MODE = {"bpsk": 0x00, "qpsk": 0x15, "qam16": 0x2A, "qam64": 0xF0, "qam256": 0x3F}


def signs(text):
    return np.array([1.0 if sign == "+" else -1.0 for sign in text])


def preamble():
    ga = signs("+++++-+---+++--+++--+--+----+-+-")
    gb = signs("-----+-+++---++-++--+--+----+-+-")
    gu = np.concatenate([-gb, -ga, gb, -ga])
    gv = np.concatenate([-gb, ga, -gb, -ga])
    return np.concatenate([np.tile(gb, 60), -gb, -ga, np.tile(np.concatenate([gu, gv]), 7)])


def bits(data):
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")


def points(data, count):
    groups = bits(data).reshape(-1, count).astype(int)
    integers = groups @ (1 << np.arange(count))
    if count == 1:
        return 1.0 - 2.0 * integers
    if count == 2:
        return ((1 - 2 * (integers & 1)) + 1j * (1 - 2 * (integers >> 1))) / np.sqrt(2)
    side = 1 << (count // 2)
    gray = np.arange(side) ^ (np.arange(side) >> 1)
    place = np.argsort(gray)
    columns, rows = place[integers >> (count // 2)], place[integers & (side - 1)]
    grid = (2 * columns - side + 1) + 1j * (side - 1 - 2 * rows)
    return grid / np.sqrt(2 * (side**2 - 1) / 3)


def taps():
    beta = 0.5
    t = np.arange(-24, 25) / 3
    with np.errstate(divide="ignore", invalid="ignore"):
        top = np.sin(np.pi * t * (1 - beta)) + 4 * beta * t * np.cos(np.pi * t * (1 + beta))
        h = top / (np.pi * t * (1 - (4 * beta * t) ** 2))
    h[t == 0] = 1 - beta + 4 * beta / np.pi
    # No tap stands at ±1/(4β) = ±½: a third of a symbol is between two.
    assert np.isfinite(h).all()
    return h / np.sqrt(np.sum(h**2)) * np.sqrt(3)


def main():
    name = sys.argv[1]
    size = 12256 * BITS[name] // 8 - 4
    payload = ((7 * np.arange(size) + 3) % 256).astype(np.uint8).tobytes()
    header = bytes([MODE[name], 0, 5, 5, 5, 0]) + size.to_bytes(2, "little")
    check = (zlib.crc32(header + payload) ^ 0xFFFFFFFF).to_bytes(4, "little")
    body = points(payload + check, BITS[name])
    symbols = np.concatenate([preamble(), 1.0 - 2.0 * bits(header), body])
    spread = np.zeros(3 * len(symbols), complex)
    spread[::3] = symbols
    sys.stdout.buffer.write(np.convolve(spread, taps()).astype(np.complex128).tobytes())


main()
