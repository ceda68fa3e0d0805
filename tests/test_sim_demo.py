"""The demo as a person starts it: a broker, a gateway and nodes in processes, and none is left.

Each runs in a temporary folder of its own, which the command lines of its processes name: that is
how those who stayed behind are found.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from support.mosquitto import Mosquitto, find_mosquitto
from support.web_town import browser, find_chromium

from edge_opid.link.background import BackgroundLink
from edge_opid.link.options import MqttOptions
from firmware_sim.live import broker as live_broker
from firmware_sim.live.broker import open_broker
from firmware_sim.live.page import DemoPage
from firmware_sim.live.processes import Children, LiveError
from firmware_sim.scenario.recording import recording
from firmware_sim.scenario.rivals import RESTARTED, RIVALS, ZERO_FILLING
from firmware_sim.scenario.scenario import load_scenario
from firmware_sim.scenario.score import MODELS, Score
from firmware_sim.scenario.script import Script

WAIT_S = 300.0  # for a busy machine; nothing is judged by its speed
# Faster, a busy machine would lose all sensors before the gateway has a place for their heirs.
SHORT = ("rolling_replacement", "--nodes", "2", "--readings", "60", "--speed", "5")
HAS_PROC = Path("/proc/self/cmdline").exists()


def needs_amqtt() -> None:
    if importlib.util.find_spec("amqtt") is None:
        reason = "amqtt is not installed: pip install -e '.[sim]'"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def start(folder: Path, *given: str) -> subprocess.Popen[str]:
    temporary = folder / "temporary"
    temporary.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "firmware_sim", "run", *given, "--out", str(folder / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary), "OPENBLAS_NUM_THREADS": "1"},
    )


def test_a_curve_ends_where_all_of_its_last_readings_have_been_played() -> None:
    """Of fifty readings one has come: its mean would jump to 0 or 100 per cent, before all eyes."""
    score = Score(Script(load_scenario("one_retire"), seed=7))
    guess = dict.fromkeys((ZERO_FILLING, RESTARTED), "nothing")
    for place in range(73):
        score.guessed(place, dict.fromkeys(score.script.nodes, guess))
    film = recording(score, "so far", live=True)
    (points,) = re.findall(r'polyline class="zeros" points="([^"]*)"', film)
    assert len(points.split()) == 3, "after 50, 60 and 70 readings"


def test_the_page_says_who_is_right_and_what_each_change_cost() -> None:
    """At the start there is nothing to draw; a change is shown once it has happened."""
    score = Score(Script(load_scenario("one_retire"), seed=7))
    with DemoPage(score, 0, 8470) as page:
        assert "Every model gets the same readings" in asked(page, "/")
        assert "are starting" in asked(page, "/now")
        change = score.after_changes()[0].at
        play(score, change)
        assert "all sensors work" in asked(page, "/now")
        assert "<table>" not in asked(page, "/now")
        play(score, change + 20)
        shown = asked(page, "/now")
    assert all(f"<th>{name}" in shown for name in MODELS)
    assert "<td>pm10 goes" in shown
    assert shown.count("polyline class") == 3
    with pytest.raises(OSError, match="refused"):
        asked(page, "/")


def test_the_page_fits_a_phone_and_says_when_the_demo_has_ended() -> None:
    """A drawing that no longer moves must not look like a fleet that has stopped."""
    find_chromium()
    pytest.importorskip("playwright")
    score = Score(Script(load_scenario("meeting_rooms"), seed=7))
    play(score, 1100)
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 360, "height": 740})
        with DemoPage(score, 0, 8470) as demo:
            page.goto(f"http://127.0.0.1:{demo.port}/")
            page.get_by_text("last change: window joins").wait_for()
            widest = page.evaluate("document.documentElement.scrollWidth")
        page.get_by_text("The demo has ended").wait_for()
        assert page.locator("polyline").count() == 3, "the drawing stays"
    assert widest == 360


def asked(page: DemoPage, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{page.port}{path}") as answer:
        return str(answer.read().decode())


def play(score: Score, until: int) -> None:
    """Everybody says the same of every reading, and is right now and then."""
    for place in range(score.played, until):
        truths = {node: score.script.instance(node, place).truth for node in score.script.nodes}
        score.guessed(place, {node: dict.fromkeys(RIVALS, truths["n1"]) for node in truths})
        for node in truths:
            score.served(node, place, truths["n1"])


def left_behind(folder: Path) -> list[str]:
    """The command lines of processes that belong to the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended while we looked
        if str(folder / "temporary") in words:
            found.append(words)
    return found


def nobody_is_left(folder: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while found := left_behind(folder):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def until_it_reads(demo: subprocess.Popen[str]) -> None:
    """Until the first line that tells of readings."""
    assert demo.stdout is not None
    for line in demo.stdout:
        if re.search(r"reading \d+ of", line):
            return
    assert demo.stderr is not None
    raise AssertionError(f"the demo ended early: {demo.stderr.read()}")


def check_report(folder: Path, shown: str, broker: str) -> None:
    text = (folder / "out" / "rolling_replacement.txt").read_text()
    assert text in shown
    found = json.loads((folder / "out" / "rolling_replacement.json").read_text())
    assert found["facts"]["broker"] == broker
    assert len(found["changes"]) == 8
    assert all(share is not None for share in found["accuracy"].values())
    assert "way to the best linear model" in text
    plotted = (folder / "out" / "rolling_replacement.png").exists()
    assert plotted == (importlib.util.find_spec("matplotlib") is not None)
    assert not list((folder / "temporary").iterdir())


def test_the_demo_runs_on_mosquitto_and_leaves_nothing_behind(tmp_path):
    """As most people start it."""
    find_mosquitto()
    demo = start(tmp_path, *SHORT, "--live")
    shown, trouble = demo.communicate(timeout=WAIT_S)
    assert (demo.returncode, trouble) == (0, "")
    check_report(tmp_path, shown, "mosquitto")
    assert left_behind(tmp_path) == []


def test_the_demo_runs_without_a_broker_installed(tmp_path):
    """The embedded broker takes the place of mosquitto."""
    needs_amqtt()
    demo = start(tmp_path, *SHORT, "--broker", "embedded")
    shown, trouble = demo.communicate(timeout=WAIT_S)
    assert (demo.returncode, trouble) == (0, "")
    check_report(tmp_path, shown, "amqtt (embedded)")
    assert left_behind(tmp_path) == []


def test_a_broker_of_somebody_else_is_left_as_it_was(tmp_path):
    with Mosquitto(tmp_path / "broker", users={"me": "s3cret"}, acl="user me\ntopic #\n") as broker:
        url = f"mqtt://me:s3cret@127.0.0.1:{broker.port}"
        demo = start(tmp_path, *SHORT, "--broker", url)
        shown, trouble = demo.communicate(timeout=WAIT_S)
        assert (demo.returncode, trouble) == (0, "")
        assert "s3cret" not in shown
        check_report(tmp_path, shown, f"127.0.0.1:{broker.port}")
        assert retained(broker, tmp_path) == []


def retained(broker: Mosquitto, folder: Path) -> list[str]:
    """What the broker tells a newcomer before it repeats the newcomer's own words."""
    credentials = folder / "me.credentials"
    credentials.touch(mode=0o600)
    credentials.write_text("me\ns3cret\n")
    link = BackgroundLink(MqttOptions(client_id="me", port=broker.port, credentials=credentials))
    link.subscribe(["opid/1/#", "end"])
    link.start()
    try:
        link.wait_connected(WAIT_S)
        link.publish("end", b"")
        found = []
        while (delivery := link.poll(WAIT_S)) is not None and delivery.topic != "end":
            found.append(delivery.topic)
        assert delivery is not None
        return found
    finally:
        link.stop()


@pytest.mark.skipif(not HAS_PROC, reason="only /proc tells who is left")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_behind(tmp_path, number):
    """Ctrl-C, or `kill`, in the middle of it."""
    find_mosquitto()
    demo = start(tmp_path, "rolling_replacement", "--nodes", "2", "--live")
    until_it_reads(demo)
    assert len(left_behind(tmp_path)) >= 4
    demo.send_signal(number)
    _, trouble = demo.communicate(timeout=WAIT_S)
    assert demo.returncode == 130
    assert trouble == "opid-sim: interrupted; everything that was started has ended\n"
    assert left_behind(tmp_path) == []
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends orphans")
def test_a_killed_demo_leaves_no_process_behind(tmp_path):
    """`kill -9`: it cannot tidy up itself."""
    find_mosquitto()
    demo = start(tmp_path, "rolling_replacement", "--nodes", "2", "--live")
    until_it_reads(demo)
    demo.kill()
    demo.communicate(timeout=WAIT_S)
    nobody_is_left(tmp_path)


# --- the parts ------------------------------------------------------------------------------------


def test_without_mosquitto_the_embedded_broker_takes_its_place(tmp_path, monkeypatch):
    """Nobody has installed it."""
    needs_amqtt()
    monkeypatch.setattr(live_broker, "find_mosquitto", lambda: None)
    with Children(tmp_path) as children:
        broker = open_broker(None, tmp_path, children)
        assert (broker.name, broker.host, broker.mqtt_5) == ("amqtt (embedded)", "127.0.0.1", False)
    assert children.all == []


def test_a_process_that_ends_by_itself_is_reported_with_its_last_words(tmp_path):
    """A child that dies would otherwise be waited for."""
    with Children(tmp_path) as children:
        child = children.start("quitter", [sys.executable, "-c", "print('out of paper'); exit(3)"])
        child.process.wait(WAIT_S)
        with pytest.raises(LiveError, match=r"quitter ended with exit code 3; .*\nout of paper"):
            children.check()


def test_a_process_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    """A child that ignores SIGTERM would keep the demo from ending."""
    monkeypatch.setattr("firmware_sim.live.processes.STOP_S", 0.5)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(600)"
    with Children(tmp_path) as children:
        child = children.start("deaf", [sys.executable, "-c", deaf])
        deadline = time.monotonic() + WAIT_S
        while "deaf" not in child.log():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert children.stop() == {"deaf": -signal.SIGKILL}
