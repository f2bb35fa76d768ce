"""Looks at the demo's page: look.py URL FAULT-FILE PROCESS [PICTURES]. Fails where it does not show what it should.

At last it ends the demo, by the number of its process, and looks at the page that is left.
"""

import os
import pathlib
import signal
import sys

from browser import BRIGHT, CREST, DOCUMENTS, VERDICT, Browser, check_fits, check_loads


# Which document it shows, by its figure.
SHOWN = """
const boxes = [...document.querySelectorAll('#panel-figures .values div')];
return Number(boxes.find((box) => box.querySelector('span').textContent === 'document').querySelector('b').textContent);
"""
BLANK = "return Number(document.querySelector('#panel-waterfall canvas').dataset.blank)"
KEPT = "['.verdict .words span', '#panel-spectrum h2 .key', '#panel-graph .name', '#panel-log .text', '#panel-time .bar']"
REMEMBER = f"window.kept = {KEPT}.map((path) => document.querySelector(path).firstChild);"
ANEW = f"return {KEPT}.filter((path, at) => document.querySelector(path).firstChild !== window.kept[at]);"
# At one moment: a page that is held up leaves documents out.
TONE = f"return [(() => {{ {SHOWN} }})(), (() => {{ {CREST} }})()];"


def tone(browser):
    """Where the tone is in the band, in sixteenths of it, and the column where it is shown."""
    document, column = browser.run(TONE, "#panel-spectrum canvas")
    return document % 16, column


def look(url, fault, width, height, pictures, process=None):
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
        if browser.run(BLANK) > 1:
            raise SystemExit(f"the waterfall has gaps of {browser.run(BLANK)} s")
        # Words that stay the same are not written again, so that they can be selected.
        browser.run(REMEMBER)
        before = browser.run(DOCUMENTS)
        browser.wait("two documents", DOCUMENTS, lambda count: count >= before + 2)
        anew = browser.run(ANEW)
        if anew:
            raise SystemExit(f"written anew each second: {anew}")
        browser.wait("all well", VERDICT, lambda state: state == "well")
        told = browser.run("return document.getElementById('told').textContent")
        if told != "Well: all well":
            raise SystemExit(f"a screen reader says {told!r}")
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
        if process:
            left_alone(browser, process, width, pictures)
    finally:
        fault.unlink(missing_ok=True)
        browser.close()


def left_alone(browser, process, width, pictures):
    """The program dies: the page says so wherever it is scrolled to."""
    os.kill(process, signal.SIGTERM)
    browser.run("window.scrollTo(0, document.body.scrollHeight)")
    says = "const box = document.getElementById('gone'); return box.hidden ? '' : box.textContent"
    browser.wait("no answer", says, lambda text: text.startswith("No answer for "))
    place = browser.run("const { top, bottom } = document.getElementById('gone').getBoundingClientRect(); return [top, bottom]")
    if place[0] != 0 or place[1] < 20:
        raise SystemExit(f"the banner is at {place}")
    if browser.run("return Number(getComputedStyle(document.querySelector('main')).opacity)") < 0.75:
        raise SystemExit("what is old is too pale to be read")
    check_fits(browser, width)
    if pictures:
        browser.picture(pictures / f"gone-{width}.png", whole=False)


def main():
    url, fault, process = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    pictures = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None
    look(url, fault, 1280, 900, pictures)
    look(url, fault, 390, 844, pictures, process)


main()
