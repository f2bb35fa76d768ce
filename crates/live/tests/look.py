"""Looks at the demo's page: look.py URL FAULT-FILE [PICTURES]. Fails where it does not show what it should."""

import pathlib
import sys

from browser import BRIGHT, CREST, DOCUMENTS, VERDICT, Browser, check_fits, check_loads


# Which document it shows, by its figure.
SHOWN = """
const boxes = [...document.querySelectorAll('#panel-figures .values div')];
return Number(boxes.find((box) => box.querySelector('span').textContent === 'document').querySelector('b').textContent);
"""
# At one moment: a page that is held up leaves documents out.
TONE = f"return [(() => {{ {SHOWN} }})(), (() => {{ {CREST} }})()];"


def tone(browser):
    """Where the tone is in the band, in sixteenths of it, and the column where it is shown."""
    document, column = browser.run(TONE, "#panel-spectrum canvas")
    return document % 16, column


def look(url, fault, width, height, pictures):
    browser = Browser(width, height)
    try:
        browser.open(url)
        browser.wait("documents", DOCUMENTS, lambda count: count >= 2)
        check_fits(browser, width)
        # The tone moves with every document, by 1/16 of the band, and begins anew.
        places = {}
        while len(places) < 4:
            sixteenth, column = tone(browser)
            if sixteenth not in places:
                places[sixteenth] = column
            browser.wait("the next tone", TONE, lambda seen: seen[0] % 16 != sixteenth, "#panel-spectrum canvas")
        first, *others = sorted(places)
        steps = [(places[other] - places[first]) / (other - first) for other in others]
        if any(not 0.03 < step < 0.07 for step in steps):
            raise SystemExit(f"the tone is seen at {places}")
        rows = browser.run("return Number(document.querySelector('#panel-waterfall canvas').dataset.rows)")
        if rows < 4:
            raise SystemExit(f"the waterfall has {rows} rows")
        # The tone is in one value of a thousand, and so narrower than a pixel.
        bright = browser.run(BRIGHT, "#panel-waterfall canvas", 4)
        if bright != 4:
            raise SystemExit(f"the tone is seen in {bright} of 4 rows of the waterfall")
        if browser.run(CREST, "#panel-samples canvas") is None:
            raise SystemExit("the trace shows no curve")
        points = browser.run("return Number(document.querySelector('#panel-circle canvas').dataset.points)")
        if points != 500 or browser.run(CREST, "#panel-circle canvas") is None:
            raise SystemExit(f"the circle has {points} points")
        # What others wrote is text, never part of the page.
        if browser.run("return document.querySelectorAll('#panel-log b').length"):
            raise SystemExit("an entry of the log became an element")
        browser.wait("all well", VERDICT, lambda state: state == "well")
        fault.touch()
        browser.wait("a fault", VERDICT, lambda state: state == "bad")
        words = browser.run("return document.querySelector('.verdict').innerText")
        if any(word not in words for word in ("no-input", "digitiser", "since", "Run-book: No heap has come.")):
            raise SystemExit(f"the verdict says {words!r}")
        if pictures:
            browser.picture(pictures / f"demo-{width}.png")
        fault.unlink()
        browser.wait("the fault's end", VERDICT, lambda state: state == "well")
        check_fits(browser, width)
        check_loads(browser, url)
    finally:
        fault.unlink(missing_ok=True)
        browser.close()


def main():
    url, fault = sys.argv[1], pathlib.Path(sys.argv[2])
    pictures = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    for width, height in [(1280, 900), (390, 844)]:
        look(url, fault, width, height, pictures)


main()
