"""Looks at the page of a running graph whose middle partition is the limit: look_flow.py URL."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "crates/live/tests"))
from browser import DOCUMENTS, Browser, check_fits, check_loads, serves  # noqa: E402

# The names of the boxes that are marked.
MARKED = """
const boxes = [...document.querySelectorAll("#panel-graph svg.network rect.box")];
const names = [...document.querySelectorAll("#panel-graph svg.network text.name")];
return boxes.flatMap((box, at) => box.classList.contains("marked") ? [names[at].textContent] : []);
"""
NAMES = """
return [...document.querySelectorAll("#panel-graph svg.network text.name")].map((name) => name.textContent);
"""
SCALE = """
const picture = document.querySelector("#panel-graph svg.network");
return picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
"""
ARROWS = 'return document.querySelectorAll("#panel-graph svg.network path.arrow").length'
ROWS = """
return [...document.querySelectorAll("#panel-queues tbody tr")].map(
  (row) => [...row.querySelectorAll("td, th")].map((cell) => cell.textContent));
"""
WANTED = {"inputs", "partition 0", "partition 1", "partition 2", "outputs"}


def look(url, width, height):
    browser = Browser(width, height)
    try:
        browser.open(url)
        browser.wait("documents", DOCUMENTS, lambda count: count >= 3)
        names = browser.run(NAMES)
        if set(names) != WANTED:
            raise SystemExit(f"the picture has {names}")
        if browser.run(ARROWS) != 4:
            raise SystemExit("the picture has not four arrows")
        browser.wait("the limit", MARKED, lambda marked: marked == ["partition 1"])
        # How long each waits depends on who else has the CPUs. But who reads from the limit waits longer for blocks
        # than the limit does.
        def waits(rows):
            times = {(row[0], row[1]): (float(row[2]), float(row[3])) for row in rows if len(row) == 6}
            before = times.get(("partition 0", "partition 1"), (0, 0))
            behind = times.get(("partition 1", "partition 2"), (0, 0))
            return len(times) == 4 and behind[1] > 50 and behind[1] > before[1]

        browser.wait("waiting by queue", ROWS, waits)
        text = browser.run("return document.querySelector('.verdict .words').textContent")
        if "the limit is partition 1" not in text:
            raise SystemExit(f"the verdict is {text}")
        # As large as letters are elsewhere; what is wider scrolls.
        scale = browser.run(SCALE)
        if not 0.99 < scale < 1.01:
            raise SystemExit(f"the graph is drawn {scale} as large as it is")
        check_fits(browser, width)
        check_loads(browser, url)
    finally:
        browser.close()


def main():
    url = sys.argv[1]
    metrics = serves(url)
    if 'flow_ticks_total{partition="partition 1"}' not in metrics:
        raise SystemExit(f"the metrics are {metrics}")
    for width, height in [(1280, 900), (390, 844)]:
        look(url, width, height)


if __name__ == "__main__":
    main()
