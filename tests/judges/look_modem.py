"""Looks at the page of a modem's link that sends a text as QPSK: look_modem.py URL."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "crates/live/tests"))
from browser import CREST, DOCUMENTS, VERDICT, Browser, check_fits, check_loads, serves  # noqa: E402

POINTS = "return Number(document.querySelector('#panel-{} canvas')?.dataset.points ?? 0)"
FIGURES = """
const boxes = [...document.querySelectorAll("#panel-figures .values div")];
return Object.fromEntries(boxes.map((box) => [box.querySelector("span").textContent, box.querySelector("b").textContent]));
"""
COUNTS = """
return Object.fromEntries([...document.querySelectorAll("#panel-counts tbody tr")].map(
  (row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent)));
"""
LOG = "return document.querySelector('#panel-log .entries .text')?.textContent ?? ''"


def look(url, width, height):
    browser = Browser(width, height)
    try:
        browser.open(url)
        browser.wait("documents", DOCUMENTS, lambda count: count >= 3)
        for panel in ("constellation", "eye"):
            browser.wait(panel, POINTS.format(panel), lambda count: count > 1000)
        for panel in ("spectrum", "taps"):
            if browser.run(CREST, f"#panel-{panel} canvas") is None:
                raise SystemExit(f"{panel} shows no curve")
        # Es/N0 is 20 dB: the error vector is a tenth.
        figures = browser.run(FIGURES)
        evm, carrier = figures["EVM"].split(), figures["carrier"].split()
        if evm[1] != "%" or not 8 < float(evm[0]) < 12:
            raise SystemExit(f"EVM: {evm}")
        if carrier[1] != "Hz" or not 150 < float(carrier[0]) < 250:
            raise SystemExit(f"carrier: {carrier}")
        # Frames of a power of 1 at full duty, three samples a symbol, and noise of a third of a hundredth.
        level = figures["level"].split()
        if " ".join(level[1:]) != "dB re 1" or not -1 < float(level[0].replace("−", "-")) < 1:
            raise SystemExit(f"level: {level}")
        # What --correct takes off is what the channel put on.
        offset = figures["DC of I"].split()
        if not 0.04 < float(offset[0]) < 0.06:
            raise SystemExit(f"DC of I: {offset}")
        before = int(browser.run(COUNTS)["delivered"])
        browser.wait("more frames", COUNTS, lambda counts: int(counts["delivered"]) > before)
        browser.wait("all well", VERDICT, lambda state: state == "well")
        browser.wait("the text", LOG, lambda text: "to be or not to be" in text)
        check_fits(browser, width)
        check_loads(browser, url)
    finally:
        browser.close()


def main():
    url = sys.argv[1]
    metrics = serves(url)
    if 'modem_frames_total{outcome="delivered"}' not in metrics:
        raise SystemExit(f"the metrics are {metrics}")
    if 'modem_input_power_db{to="1"}' not in metrics:
        raise SystemExit(f"the metrics have no level: {metrics}")
    if 'modem_input_dc{part="i"}' not in metrics:
        raise SystemExit(f"the metrics do not say what is taken off: {metrics}")
    for width, height in [(1280, 900), (390, 844)]:
        look(url, width, height)


main()
