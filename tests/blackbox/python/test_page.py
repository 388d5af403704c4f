"""The page of the admin port in headless Chromium: what a person would see, and what the console says.

Screenshots are left in the folder that BLACKBOX_SCREENSHOTS names, if it does."""

import os
import pathlib

import pytest
import redis

import browsers
import servers

pytestmark = [
    pytest.mark.dovetail_only,
    pytest.mark.index("hash"),
    pytest.mark.skipif(browsers.binary() is None, reason="no browser: apt-get install chromium"),
]

SIZES = [(390, 844, False), (1280, 900, True)]


@pytest.fixture
def browser():
    running = browsers.Browser()
    yield running
    running.close()


def url(server, path=""):
    return f"http://{servers.HOST}:{server.admin_port}/{path}"


def shown_folder(tmp_path):
    folder = pathlib.Path(os.environ.get("BLACKBOX_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def load(server):
    """A little of everything, so that there is something to draw."""
    with redis.Redis(port=server.resp_port, protocol=2) as client, client.pipeline(False) as pipe:
        for n in range(3000):
            pipe.set(f"key:{n % 500}", "x" * (n % 900))
            pipe.get(f"key:{n % 700}")
            pipe.get("<b>hot</b>")
        pipe.execute()


@pytest.mark.parametrize("width,height,is_dark", SIZES)
def test_the_page_shows_what_the_server_does(server, browser, tmp_path, width, height, is_dark):
    browser.size(width, height)
    browser.dark(is_dark)
    load(server)
    browser.open(url(server))
    browser.wait("document.querySelectorAll('figure:not([hidden])').length >= 4")
    for _ in range(4):
        load(server)
        browser.ask("Runtime.evaluate", {"expression": "new Promise(r => setTimeout(r, 800))",
                                         "awaitPromise": True})
    text = browser.value("document.body.innerText")
    for word in ("operations a second", "p99.9", "memory by use", "busy, by worker", "connections", "Commands"):
        assert word in text, text
    browser.wait("document.querySelectorAll('#commands tbody tr').length >= 2")
    assert browser.value("document.querySelectorAll('#hot b, #commands b').length") == 0
    browser.wait("document.querySelectorAll('#sizes .bar').length >= 2")
    assert "items sampled at random" in browser.value("document.getElementById('sizes-about').textContent")
    # Nothing to the side of the screen, on a phone above all.
    assert browser.value("document.documentElement.scrollWidth") <= width
    path = shown_folder(tmp_path) / f"page-{width}.png"
    browser.screenshot(path)
    assert path.stat().st_size > 10_000
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper[4:-1].split(","))) < 200) == is_dark, paper
    browser.click("footer a[href=stats]")
    browser.wait("location.pathname === '/stats'")
    browser.wait("document.body.innerText.includes('commands_total')")
    assert browser.complaints == []


def test_a_server_that_goes_away_is_missed(browser, tmp_path):
    server = servers.start()
    try:
        browser.size(390, 844)
        browser.open(url(server))
        browser.wait("document.querySelectorAll('figure:not([hidden])').length >= 1")
        assert browser.value("document.querySelectorAll('.lost').length") == 0
    finally:
        server.stop()
    browser.wait("document.querySelector('#about.lost') !== null")
    text = browser.value("document.getElementById('about').innerText")
    assert text.startswith("no answer from the server since "), text
    browser.screenshot(shown_folder(tmp_path) / "page-lost.png")
