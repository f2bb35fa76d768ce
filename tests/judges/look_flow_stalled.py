"""Looks at the page of a graph that is stalled for a while: look_flow_stalled.py URL inputs|outputs."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "crates/live/tests"))
from browser import VERDICT, Browser, check_loads, serves  # noqa: E402
from look_flow import MARKED  # noqa: E402

WORDS = "return document.querySelector('.verdict .words')?.textContent ?? ''"
SAYS = {"inputs": "inputs: nothing comes, since ", "outputs": "outputs take nothing, since "}


def main():
    url, end = sys.argv[1:]
    serves(url)
    browser = Browser(1280, 900)
    try:
        browser.open(url)
        browser.wait("a stall", WORDS, lambda text: text.startswith(SAYS[end]))
        browser.wait("a warning", VERDICT, lambda state: state in ("warning", "bad"))
        browser.wait("a long stall", VERDICT, lambda state: state == "bad")
        browser.wait("the limit", MARKED, lambda marked: marked == [end])
        # What stays the same is not written again: it can be selected.
        browser.run("window.kept = document.querySelector('.verdict .words span').firstChild")
        documents = browser.run("return Number(document.body.dataset.documents)")
        browser.wait("two more", "return Number(document.body.dataset.documents)", lambda count: count > documents + 1)
        if not browser.run("return window.kept === document.querySelector('.verdict .words span').firstChild"):
            raise SystemExit("the verdict was written anew")
        check_loads(browser, url)
    finally:
        browser.close()


if __name__ == "__main__":
    main()
