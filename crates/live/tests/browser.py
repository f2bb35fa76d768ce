"""A browser without a screen, by the WebDriver protocol of Debian's chromedriver; and what pages are looked at for."""

import base64
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request


@contextlib.contextmanager
def inside(namespace):
    """The calling thread, and what it starts meanwhile, is in this network namespace."""
    with open("/proc/thread-self/ns/net") as own, open(f"/run/netns/{namespace}") as other:
        enter(other)
        try:
            yield
        finally:
            enter(own)


def enter(namespace):
    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
        raise SystemExit(os.strerror(ctypes.get_errno()))


class Browser:
    """A window of some size. Everything that it loads is noted."""

    def __init__(self, width, height, dark=False):
        self.profile = tempfile.mkdtemp(prefix="karoo-browser-")
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for line in self.driver.stdout:
            if "successfully on port" in line:
                port = line.rsplit("port", 1)[1].strip().strip(".")
                self.base = f"http://127.0.0.1:{int(port)}"
                break
        else:
            raise SystemExit("chromedriver did not start")
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-proxy-server", "--disable-background-networking", f"--user-data-dir={self.profile}",
        ]
        if dark:
            options.append("--force-dark-mode")
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": options},
            "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
        }
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"/session/{session['sessionId']}"
        phone = width < 600
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)
        if dark:
            features = [{"name": "prefers-color-scheme", "value": "dark"}]
            self.devtools("Emulation.setEmulatedMedia", {"features": features})

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{method} {path}: {error.read().decode()}") from error

    def devtools(self, command, parameters):
        return self.call("POST", f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url):
        # Not what the browser itself shows at first.
        self.call("POST", f"{self.session}/url", {"url": "about:blank"})
        self.loaded()
        self.call("POST", f"{self.session}/url", {"url": url})

    def run(self, script, *arguments):
        return self.call("POST", f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, what, script, accept, *arguments, seconds=60):
        """Runs the script until its outcome is acceptable, and returns that."""
        until = time.monotonic() + seconds
        while True:
            value = self.run(script, *arguments)
            if accept(value):
                return value
            if time.monotonic() > until:
                raise SystemExit(f"{what}: still {value!r} after {seconds} s")
            time.sleep(0.1)

    def loaded(self):
        """Addresses of all that was asked for since the last call."""
        entries = self.call("POST", f"{self.session}/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [message for message in messages if message["method"] == "Network.requestWillBeSent"]
        return [message["params"]["request"]["url"] for message in sent]

    def complaints(self):
        entries = self.call("POST", f"{self.session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def picture(self, path, whole=True):
        value = self.devtools("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        pathlib.Path(path).write_bytes(base64.b64decode(value["data"]))

    def close(self):
        try:
            self.call("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait()
            shutil.rmtree(self.profile, ignore_errors=True)


DOCUMENTS = "return Number(document.body.dataset.documents ?? 0)"
VERDICT = "return document.querySelector('.verdict')?.dataset.state ?? ''"

# The column, between 0 and 1, where the curve of the first series is highest: of the pixels as they are shown.
CREST = """
const canvas = document.querySelector(arguments[0]);
const context = canvas.getContext('2d');
const style = getComputedStyle(document.documentElement).getPropertyValue('--c0').trim();
const wanted = [1, 3, 5].map((at) => parseInt(style.slice(at, at + 2), 16));
const { data, width, height } = context.getImageData(0, 0, canvas.width, canvas.height);
for (let row = 0; row < height; row += 1) {
  for (let column = 0; column < width; column += 1) {
    const at = 4 * (row * width + column);
    // The curve of this moment is opaque; that of the peaks is not.
    if (data[at + 3] > 200 && wanted.every((value, index) => Math.abs(data[at + index] - value) < 40)) return column / width;
  }
}
return null;
"""


# Of so many rows of a waterfall, the newest first, those with a pixel of the brightest colour.
BRIGHT = """
const canvas = document.querySelector(arguments[0]);
const ratio = canvas.width / canvas.clientWidth;
const context = canvas.getContext('2d');
let bright = 0;
for (let row = 0; row < arguments[1]; row += 1) {
  // Sixty rows between the edges of the plot.
  const y = Math.floor((6 + ((row + 0.5) * 204) / 60) * ratio);
  const { data } = context.getImageData(0, y, canvas.width, 1);
  const is = (at) => data[at] > 200 && data[at + 1] > 180 && data[at + 2] < 110;
  for (let at = 0; at < data.length; at += 4) {
    if (is(at)) { bright += 1; break; }
  }
}
return bright;
"""


def serves(url):
    """Waits until the program at this address serves its metrics, and gives them."""
    until = time.monotonic() + 60
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with opener.open(url + "metrics", timeout=5) as response:
                return response.read().decode()
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > until:
                raise SystemExit("nothing is served") from None
            time.sleep(0.1)


def check_loads(browser, url):
    """Nothing was loaded from anywhere else, and nothing was wrong."""
    loaded = browser.loaded()
    elsewhere = [address for address in loaded if not address.startswith((url, "data:"))]
    if not loaded or elsewhere:
        raise SystemExit(f"loaded from elsewhere: {elsewhere}, of {len(loaded)}")
    complaints = browser.complaints()
    if complaints:
        raise SystemExit(f"the browser complains: {complaints}")


def check_fits(browser, width):
    """Nothing is wider than the screen."""
    wide = browser.run("return document.documentElement.scrollWidth")
    if wide > width:
        raise SystemExit(f"the page is {wide} wide on a screen of {width}")
