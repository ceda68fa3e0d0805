"""A person with a phone, and one with a screen: real Chromium, real pages, a real node.

`make browser` also takes the screenshots of docs/web.md.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("playwright")

from paho.mqtt import publish
from support.fleet_rig import CLASSES, SITE
from support.node_process import WAIT_S, wait_until
from support.web_site import LAN, TOKEN, Pages, keys, opened
from support.web_town import REBOUND, SCREENSHOTS, WebTown, browser, find_chromium

from gateway.store import FleetStore
from gateway.web.access import Scope
from gateway.web.guard import now_ms

NODE = f"{SITE}/n1"
PHONE = {"width": 360, "height": 740}
SCREEN = {"width": 1000, "height": 720}
SHIFTS = """() => new Promise((done) => {
  let sum = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 300);
})"""


class Visitor:
    """A window of the browser, and every address that it asked for."""

    def __init__(self, chromium, base, size, scheme="light"):
        self.base, self.asked, self.complaints = base, [], []
        options = {"viewport": size, "color_scheme": scheme, "has_touch": size is PHONE}
        self.context = chromium.new_context(**options)
        self.context.set_default_timeout(1000 * WAIT_S)
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._hear)

    def _hear(self, message):
        if message.type == "error":
            self.complaints.append(message.text)

    def go(self, path):
        self.page.goto(self.base + path)
        return self.page

    def check(self):
        """Nothing was asked of anybody else, no script failed, and no policy was broken."""
        assert [url for url in self.asked if not url.startswith(self.base)] == []
        assert self.complaints == []


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    find_chromium()
    with WebTown(tmp_path_factory.mktemp("town")) as town:
        wait_until(lambda: f"pm-{'n1'}" in town.states(), "the node is adopted")
        town.send(80, labelled=True)
        town.send(20, labelled=False)
        yield town


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


def points(page):
    return int(page.locator("#accuracy").get_attribute("data-points") or 0)


def marks(page):
    return int(page.locator("#accuracy").get_attribute("data-changes") or 0)


@pytest.fixture(scope="module")
def watched(town, chromium):
    """The page of the node, open from the beginning to the end."""
    visitor = Visitor(chromium, town.gateway.url, SCREEN)
    page = visitor.go(f"/node/{NODE}")
    wait_until(lambda: points(page) >= 1, "the first point", pause_s=0.2)
    return visitor, points(page)


@pytest.mark.usefixtures("watched")
def test_a_tap_on_a_phone_is_learned_by_the_node_and_another_takes_it_back(town, chromium):
    """Through the page, the database, the gateway, the broker and the node's journal."""
    visitor = Visitor(chromium, town.gateway.url, PHONE)
    page = visitor.go(f"/label/{NODE}")
    page.locator("button.guess, .guessed:has-text('does not know')").first.wait_for()
    before = town.counts()["learned"]
    page.get_by_role("button", name=CLASSES[0]).first.tap()
    page.get_by_text("1 label given").wait_for()
    wait_until(
        lambda: town.counts()["learned"] == before + 1,
        "the node has learned the label",
        meanwhile=town.gateway.check,
        pause_s=0.1,
    )
    page.get_by_text("sent to the node").wait_for()
    assert town.counts()["learned"] == before + 1, "once"
    page.get_by_role("button", name="Undo").tap()
    page.get_by_role("heading", name="Taken back").wait_for()
    wait_until(
        lambda: town.counts().get("unlearned") == 1,
        "the node has taken it back",
        meanwhile=town.gateway.check,
        pause_s=0.1,
    )
    visitor.check()


def test_a_sensor_is_retired_through_the_page_and_the_change_is_marked(town, chromium):
    visitor = Visitor(chromium, town.gateway.url, SCREEN)
    page = visitor.go(f"/node/{NODE}")
    wait_until(lambda: marks(page) >= 1, "its own first layout is marked", pause_s=0.2)
    before = marks(page)
    page = visitor.go(f"/operate/{NODE}")
    page.fill("#reason-co-n1", "its battery leaks")
    page.locator("section", has_text="co-n1").get_by_role("button", name="Retire").click()
    page.get_by_text("column co is removed, with sensor co-n1").wait_for()
    assert town.states()["co-n1"] == "active", "a rehearsal changes nothing"
    page.get_by_role("button", name="Confirm").click()
    page.get_by_text("Done: the gateway has accepted it").wait_for()
    wait_until(lambda: town.states()["co-n1"] == "retired", "the gateway has retired it")
    town.sensors.pop("co-n1")
    wait_until(lambda: len(town.gateway.changes()) == 1 and town.agreed(), "the node has obeyed")
    town.send(5, labelled=True)
    page = visitor.go(f"/node/{NODE}")
    wait_until(lambda: marks(page) == before + 1, "the change is marked", pause_s=0.2)
    page.get_by_role("link", name="change 1").click()
    page.get_by_role("heading", name="Change 1").wait_for()
    visitor.check()


PAGES = {
    "fleet": "/", "node": f"/node/{NODE}", "change": "/change/1", "label": f"/label/{NODE}",
    "operate": f"/operate/{NODE}", "discover": f"/discover/{SITE}/n2", "gateways": "/members",
}  # fmt: skip


DEVICES = {
    "zigbee2mqtt/Living Room": {"temperature": 21.5, "humidity": 48, "linkquality": 120},
    "zigbee2mqtt/Presence": {"presence": True, "illuminance": 310},
}


@pytest.fixture(scope="module")
def listened(town, chromium):
    """For the pictures, node n2 has had half a minute to hear what devices there are."""
    if not SCREENSHOTS:
        return
    page = Visitor(chromium, town.gateway.url, SCREEN).go(PAGES["discover"])
    page.get_by_role("button", name="Listen").click()
    for topic, said in DEVICES.items():
        publish.single(topic, json.dumps(said), port=town.broker.port)
    page.get_by_text("sensors on 2 topics").wait_for()


@pytest.mark.usefixtures("listened")
@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_every_page_fits_its_screen(town, chromium, look):
    """At 360 points nothing hangs over the edge, in the dark nothing is black on black."""
    size, scheme = (PHONE if look == "phone" else SCREEN), "dark" if look == "dark" else "light"
    visitor = Visitor(chromium, town.gateway.url, size, scheme)
    for name, path in PAGES.items():
        page = visitor.go(path)
        if name == "node":
            wait_until(lambda page=page: points(page) >= 1, "the chart is drawn", pause_s=0.1)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= size["width"], f"{name} is {width} points wide"
        ink, ground = page.evaluate(
            "[getComputedStyle(document.body).color,"
            " getComputedStyle(document.documentElement).backgroundColor]"
        )
        assert ink != ground
        unnamed = "e => e.filter(x => x.type != 'hidden' && !x.labels.length).map(x => x.id)"
        assert page.locator("input").evaluate_all(unnamed) == []
        if SCREENSHOTS:
            page.screenshot(path=Path(SCREENSHOTS) / f"{name}-{look}.png")
    visitor.check()


def test_the_keyboard_alone_is_enough_to_label(town, chromium):
    visitor = Visitor(chromium, town.gateway.url, SCREEN)
    page = visitor.go(f"/label/{NODE}")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "label":
            break
    page.keyboard.press("Enter")
    page.get_by_text("label given").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("heading", name="Taken back").wait_for()
    visitor.check()


def test_the_chart_has_moved_while_somebody_looked_and_nothing_else_has(watched):
    """The gateway samples once a minute; the page follows without being loaded again."""
    visitor, first = watched
    page = visitor.page
    wait_until(lambda: points(page) > first, "another point", pause_s=0.5)
    assert page.evaluate(SHIFTS) < 0.02, "nothing on the page has moved"
    seconds = int(page.locator("#accuracy").get_attribute("data-seconds"))
    assert seconds <= 3600, "the axis is as long as there is anything, not years"
    loads = [url for url in visitor.asked if url.endswith(f"/node/{NODE}")]
    assert len(loads) == 1, "once"
    visitor.check()


# -- attacks, by a browser that keeps to its rules -------------------------------------------------


@pytest.fixture
def guarded(tmp_path):
    """Pages that ask for a token, as on a network."""
    with opened(tmp_path, LAN):
        pass
    with Pages(tmp_path, LAN) as pages:
        wait_until(pages.answers, "the pages answer", meanwhile=pages.check)
        pages.database = f"sqlite:///{tmp_path / 'gateway.sqlite'}"
        yield pages


def commands(pages):
    with FleetStore.open(pages.database) as store:
        return store.commands()


@contextmanager
def strangers_page(target):
    """Another site, whose page sends a label to ours as soon as somebody looks at it."""
    form = (
        f'<form method=post action="{target}/label/farm/n1"><input name=label value=dry>'
        '<input name=instance value="box 1 7"></form><script>document.forms[0].submit()</script>'
    )

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(form.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def test_a_link_lets_a_phone_in_once_and_leaves_no_code_behind(guarded, chromium):
    code = keys().link(Scope.LABEL, "farm/n1", now_ms())
    visitor = Visitor(chromium, guarded.url, PHONE)
    page = visitor.go("/label/farm/n1")
    assert page.url.endswith("/login"), "without a cookie there is nothing to see"
    page = visitor.go(f"/join#{code}")
    assert page.input_value("#code") == code
    assert "#" not in page.evaluate("location.href"), "no history has it"
    page.get_by_role("button", name="Use this device").tap()
    page.get_by_role("heading", name="farm/n1: what is it now?").wait_for()
    assert page.evaluate("document.cookie") == "", "no script can read the cookie"
    page.get_by_role("button", name="damp").first.tap()
    page.get_by_text("1 label given").wait_for()
    assert len(commands(guarded)) == 1
    assert not [url for url in visitor.asked if code in url], "no address had it"
    other = Visitor(chromium, guarded.url, PHONE)
    page = other.go(f"/join#{code}")
    page.get_by_role("button", name="Use this device").tap()
    page.get_by_text("this link has already been used").wait_for()


def test_another_sites_page_cannot_label_though_the_phone_is_logged_in(guarded, chromium):
    visitor = Visitor(chromium, guarded.url, PHONE)
    page = visitor.go("/login")
    page.fill("#token", TOKEN)
    page.get_by_role("button", name="Log in").tap()
    page.get_by_role("heading", name="Fleet").wait_for()
    with strangers_page(guarded.url) as url:
        page.goto(url)
        page.get_by_text("not sent by a page of this server").wait_for()
    assert commands(guarded) == []


def test_a_strangers_name_that_points_here_shows_nothing(guarded, chromium):
    """DNS rebinding, in a browser whose resolver was made to believe it."""
    context = chromium.new_context()
    page = context.new_page()
    answer = page.goto(f"http://{REBOUND}:{guarded.port}/login")
    assert answer.status == 421
    assert "is not one of this server's names" in page.content()
    assert commands(guarded) == []
