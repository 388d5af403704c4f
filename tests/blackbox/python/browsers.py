"""Chromium without a screen, over its DevTools pipe: pages, clicks, screenshots, what the console says."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

WAIT_SECONDS = 30


def binary():
    """The browser, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One browser with one page."""

    def __init__(self):
        self._profile = tempfile.mkdtemp(prefix="browser-")
        to_browser, self._commands = os.pipe()
        self._events, from_browser = os.pipe()

        def place_pipes():
            # The browser reads from 3 and writes to 4. Out of the way first: they may be each other's.
            read, write = os.dup(to_browser), os.dup(from_browser)
            os.dup2(read, 3)
            os.dup2(write, 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 "--remote-debugging-pipe", f"--user-data-dir={self._profile}", "about:blank"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([binary(), *flags], preexec_fn=place_pipes, close_fds=False, **quiet)
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._held = 0, b""
        self.complaints = []
        target = self._ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        attach = {"targetId": target, "flatten": True}
        self._session = self._ask("Target.attachToTarget", attach)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def _message(self):
        while b"\0" not in self._held:
            piece = os.read(self._events, 1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._held += piece
        text, self._held = self._held.split(b"\0", 1)
        return json.loads(text)

    def _ask(self, method, params=None, session=None):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data):]
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        """Errors that a person would see in the console."""
        kind, params = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"])
        elif kind == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(params["args"])
        elif kind == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"])

    def ask(self, method, params=None):
        return self._ask(method, params, self._session)

    def open(self, url):
        self.ask("Page.navigate", {"url": url})

    def size(self, width, height):
        phone = width < 600
        self.ask("Emulation.setDeviceMetricsOverride",
                 {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone})

    def dark(self, is_dark):
        feature = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.ask("Emulation.setEmulatedMedia", {"features": [feature]})

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression):
        """Until it is true."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.value(expression):
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {expression}; the page says: "
                                     + self.value("document.body.innerText")[:2000])
            time.sleep(0.1)

    def click(self, selector):
        """With the mouse, in its middle."""
        place = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView();"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent",
                     {"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1})

    def screenshot(self, path):
        picture = self.ask("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._events)
        shutil.rmtree(self._profile, ignore_errors=True)
