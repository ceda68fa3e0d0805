"""The pages: each is there, shows what the database has, and loads nothing from elsewhere."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import insert

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from support.web_site import HOUR, TOML, hear, opened, post

from edge_opid.link.contract import Delivery
from edge_opid.wire import InstanceId, Label, Reading, SensorRetired, Undo, decode, encode
from gateway.__main__ import main
from gateway.registry import SensorState
from gateway.store import FleetStore
from gateway.store.database import Database
from gateway.store.sites import MemberSession
from gateway.store.tables import COMMANDS
from gateway.web import label, node_page
from gateway.web.app import READ
from gateway.web.ear import LABELLED_WITHIN
from gateway.web.label import GRACE_MS, LABELS_WAITING_MAX

STATIC = Path(__file__).parent.parent / "gateway" / "web" / "static"
TEMPLATES = STATIC.parent / "templates"
PAGES = ("/", "/node/farm/n1", "/node/farm/n2", "/node/farm/n3", "/changes", "/label",
         "/label/farm/n1", "/operate/farm/n2", "/proposals", "/discover/farm/n3",
         "/members")  # fmt: skip


@pytest.fixture
def local(tmp_path):
    with opened(tmp_path) as (site, client):
        yield site, client


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_there_and_escapes_what_others_wrote(local, path):
    """A sensor's reason is a script; a browser that ran it would act in the operator's name."""
    _, client = local
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.text.startswith("<!doctype html>")
    assert "<script>alert" not in answer.text
    assert not re.search(r"<[^>]*\s(style|on\w+)=", answer.text), "the policy forbids both"


def test_the_pages_read_either_database(tmp_path, database_url):
    """A gateway on PostgreSQL has the same pages."""
    with opened(tmp_path, url=database_url) as (site, client):
        for path in ("/", "/node/farm/n1", "/api/node/farm/n1/history.json"):
            assert client.get(path).status_code == 200, path
        post(client, "/label/farm/n1", label="dry", instance="box 1 7")
        assert len(commands(site)) == 1


def test_what_the_gateway_refused_of_a_node_is_shown_with_an_example(local):
    site, client = local
    view = site.view()
    noted = {"topic": "opid/1/farm/n1/event", "first": "{oops", "count": 4, "why": "no JSON"}
    other = {**noted, "topic": "opid/1/farm/n2/event"}
    told = {"refused-format": {**noted, "do": "Mend it."}, "stale": {**other, "do": ""}}
    view.status["own"] = {"noted": told, "connected": True}
    site.book._until_s = math.inf  # this view stays
    text = client.get("/node/farm/n1").text
    assert "opid/1/farm/n1/event {oops" in text
    assert "Mend it." in text
    assert "rate-limited" in text, "what the node itself refused"
    assert "farm/n2/event" not in text


def test_what_a_silent_sensor_says_is_shown_and_escaped(local):
    _, client = local
    text = client.get("/node/farm/n2").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "lux-2" in text
    assert "farm/n2" in client.get("/proposals").text


def test_the_page_of_a_node_says_how_far_an_overlap_is_and_how_far_the_answers_agree(local):
    site, client = local
    record = site.view().fleet.sensors["farm", "n1"]["lux-2"]
    new = {"id": "lux-9", "replaces": "lux-2", "together": 30, "judged": 29, "agreed": 28}
    with FleetStore.open(site.book.config.database) as leader:
        leader.claim()
        leader.save([replace(record, state=SensorState.MEASURING, **new)])
    site.book.expire()
    retired = {"what": "retire", "sensor": "lux-2", "reason": "worn out"}
    rehearsed = post(client, "/operate/farm/n1/rehearse", **retired)
    for text in (client.get("/node/farm/n1").text, rehearsed.text):
        assert "lux-9 takes over from lux-2 after 20 more readings together" in text
        assert "answers the same with either sensor in 96 % of 29 readings" in text


def test_a_fleet_page_says_what_each_node_says_now(local):
    site, client = local
    hear(site.ear, label="damp", confidence=0.61)
    text = client.get("/").text
    assert "damp 61.0 %" in text
    assert "91.0 %" in text, "the best predictor's accuracy"
    assert "never heard" in text, "n3 is configured and never came"
    cells = client.get("/api/live.json").json()["cells"]
    assert cells["farm/n1 says"] == "damp 61.0 %"
    assert cells["farm/n3 trouble"] == "never heard"


def test_a_prediction_in_json_is_understood_as_one_in_msgpack(local):
    site, client = local
    hear(site.ear, label="dry", confidence=0.25, json=True)
    assert client.get("/api/node/farm/n1.json").json()["said"]["label"] == "dry"


def test_documents_have_the_keys_of_the_command_line(local, tmp_path, capsys):
    """Whoever wrote a script for `--json` uses the address instead."""
    _, client = local
    config = str(tmp_path / "gateway.toml")
    Path(config).write_text(TOML)
    for path, words in (
        ("/api/nodes.json", ["node", "list", config, "--json"]),
        ("/api/node/farm/n1.json", ["node", "show", config, "farm/n1", "--json"]),
        ("/api/sensors.json", ["sensor", "list", config, "--json"]),
        ("/api/changes.json", ["change", "list", config, "--json"]),
        ("/api/status.json", ["status", config, "--json"]),
        ("/api/members.json", ["members", config, "--json"]),
    ):
        main(words)
        told = json.loads(capsys.readouterr().out)
        served = client.get(path).json()
        for each in served if isinstance(served, list) else [served]:
            each.pop("said", None)
        assert served == told, path


def test_the_page_of_gateways_shows_who_serves_what_who_stands_by_and_what_nobody_serves(
    tmp_path, postgres
):
    """A gateway died in the night: is its site served, and by whom?"""
    url = postgres.database("page_of_gateways")
    with opened(tmp_path, url=url) as (_, client), ExitStack() as stack:
        assert "No gateway serves farm." in client.get("/members").text
        database = stack.enter_context(closing(Database(url)))
        first, second = (
            stack.enter_context(closing(MemberSession(database, "00", 60.0, ["farm"])))
            for _ in range(2)
        )
        first.beat()
        _, rows = second.beat()
        assert client.get("/api/members.json").json()["unserved"] == ["farm"]
        tenure = first.take(rows[0])
        facts = client.get("/api/members.json").json()
        assert facts["unserved"] == []
        assert {each["name"]: each["sites"] for each in facts["members"]} == {
            first.name: ["farm"],
            second.name: [],
        }
        page = client.get("/members").text
        assert "Every site is served." in page
        assert page.count(f"process {os.getpid()} on") == 2
        assert "nothing: on standby" in page
        first.give(tenure)
        assert "No gateway serves farm." in client.get("/members").text


def test_history_has_the_samples_and_the_changes(local):
    _, client = local
    found = client.get("/api/node/farm/n1/history.json?hours=24").json()
    assert found["times"] == [HOUR * 3_600 + 60 * minute for minute in range(3)]
    assert found["accuracy"] == [0.8, 0.81, 0.82]
    assert found["readings"] == [60, 60, 60]
    assert [each["layout"] for each in found["changes"]] == [1]
    by_hour = client.get("/api/node/farm/n1/history.json?hours=168").json()
    assert by_hour["accuracy"] == [pytest.approx(0.81)]
    assert by_hour["readings"] == [3.0]


def test_what_is_not_there_is_said_and_nothing_else(local):
    _, client = local
    for path in ("/node/farm/nobody", "/change/7", "/command/9"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "This cannot be done" in answer.text
    assert client.get("/api/change/7.json").json()["error"].startswith("there is no change 7")


def test_a_browser_that_has_a_page_gets_no_bytes(local):
    _, client = local
    first = client.get("/")
    again = client.get("/", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


# -- nothing from elsewhere ------------------------------------------------------------------------

ALLOWED = {
    "https://github.com/leeoniya/uPlot",  # the first line of the vendored file: a comment
    "http://www.w3.org/2000/svg",  # a namespace, which nobody fetches
}


@pytest.mark.parametrize("path", sorted([*STATIC.rglob("*"), *TEMPLATES.rglob("*")]), ids=str)
def test_no_served_file_names_another_host(path):
    """A page that loads from elsewhere tells others who looks, and stops working offline."""
    if path.is_file() and path.name != "uPlot-LICENSE.txt":
        found = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"')]*", path.read_text()))
        assert found <= ALLOWED


def test_no_page_names_another_host(local):
    _, client = local
    for path in READ:
        url = path.replace("{site}/{node}", "farm/n1").replace("{number:int}", "1")
        text = client.get(url).text
        assert not re.findall(r"(?:src|href|action)=\"(?!/|#|\?)", text), url


def test_the_vendored_library_has_its_licence_and_its_version():
    vendor = STATIC / "vendor"
    assert "Permission is hereby granted" in (vendor / "uPlot-LICENSE.txt").read_text()
    assert "(v1.6.32)" in (vendor / "uPlot-1.6.32.iife.min.js").read_text()[:80]


# -- labels ----------------------------------------------------------------------------------------


def commands(site):
    return site.book.ask(lambda context: context.store.commands())


def test_a_label_names_the_instance_that_was_seen(local):
    """A tap takes a second, in which the node says something else."""
    site, client = local
    hear(site.ear, seq=41)
    assert 'value="box 1 41"' in client.get("/label/farm/n1").text
    hear(site.ear, seq=42)
    answer = post(client, "/label/farm/n1", label="dry", instance="box 1 41")
    assert answer.status_code == 303
    [command] = commands(site)
    assert decode(command.payload, Label) == Label("dry", InstanceId("box", 1, 41))
    assert (command.site, command.node) == ("farm", "n1")


def test_several_instances_get_their_label_at_once(local):
    site, client = local
    instances = ["box 1 3", "box 1 5"]
    post(client, "/label/farm/n1", label="damp", instance=instances, several="1")
    assert [decode(each.payload, Label).instance.seq for each in commands(site)] == [3, 5]


def test_without_a_prediction_a_label_is_about_now(local):
    site, client = local
    post(client, "/label/farm/n2", label="damp", instance="")
    assert decode(commands(site)[0].payload, Label).is_about_now


def test_a_label_is_taken_back_before_it_is_sent_and_undone_after(local, monkeypatch):
    site, client = local
    given = post(client, "/label/farm/n1", label="dry", instance="box 1 7").headers["location"]
    post(client, "/label/farm/n1/undo", given=given.rpartition("=")[2])
    assert commands(site) == []
    given = post(client, "/label/farm/n1", label="dry", instance="box 1 8").headers["location"]
    true_now = label.now_ms
    monkeypatch.setattr(label, "now_ms", lambda: true_now() + GRACE_MS)
    post(client, "/label/farm/n1/undo", given=given.rpartition("=")[2])
    first, second = commands(site)
    assert decode(first.payload, Label).instance.seq == 8
    assert decode(second.payload, Undo) == Undo(InstanceId("box", 1, 8))
    assert second.at_ms >= first.at_ms, "the label goes first"


def test_a_guest_who_gives_labels_without_end_leaves_room_for_the_operator(local):
    """No gateway runs, or the broker is away: labels pile up, and a gateway reads the oldest 1,000
    commands at a time; what an operator asked for stood behind them all.
    """
    site, client = local
    payload = encode(Label("dry"))
    with site.book._context.store._database.writing("a test") as connection:
        rows = [{"site": "farm", "node": "n1", "payload": payload, "at_ms": 0, "outcome": ""}]
        connection.execute(insert(COMMANDS), rows * LABELS_WAITING_MAX)
    site.book.expire()
    refused = post(client, "/label/farm/n1", label="dry", instance="box 1 7")
    assert refused.status_code == 400
    assert "waiting for the gateway" in refused.text
    retire = {"what": "retire", "sensor": "lux-2", "reason": "broken"}
    assert post(client, "/operate/farm/n1/confirm", **retire).status_code == 303
    read = site.book.ask(lambda context: context.store.commands())
    assert len(read) == LABELS_WAITING_MAX + 1, "the gateway reads the operator's, too"


@pytest.mark.parametrize(
    "fields",
    [
        {"label": "wet", "instance": "box 1 7"},
        {"label": "dry", "instance": "box one 7"},
        {"label": "dry", "instance": "box/../x 1 7"},
        {"label": "dry", "instance": [f"box 1 {n}" for n in range(1, 80)]},
        {"label": "dry", "several": "1"},
    ],
)
def test_a_label_that_cannot_be_leaves_nothing(local, fields):
    site, client = local
    assert post(client, "/label/farm/n1", **fields).status_code == 400
    assert commands(site) == []


# -- operating -------------------------------------------------------------------------------------


def test_a_rehearsal_shows_what_follows_and_changes_nothing(local):
    site, client = local
    fields = {"what": "retire", "sensor": "lux-2", "reason": "broken"}
    answer = post(client, "/operate/farm/n1/rehearse", **fields)
    assert "column lux is removed, with sensor lux-2" in answer.text
    assert commands(site) == []
    confirmed = post(client, "/operate/farm/n1/confirm", **fields)
    assert confirmed.headers["location"].startswith("/command/")
    [command] = commands(site)
    assert decode(command.payload, SensorRetired).reason == "broken"
    assert "about to carry it out" in client.get(confirmed.headers["location"]).text or (
        "No gateway is running" in client.get(confirmed.headers["location"]).text
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"what": "retire", "sensor": "nobody", "reason": "x"},
        {"what": "explode", "sensor": "lux-2"},
        {"what": "deploy", "sensor": "Lux 9", "role": "lux"},
        {"what": "deploy", "sensor": "lux-9", "role": "lux"},  # the role is taken
        {"what": "deploy", "sensor": "x-1", "role": "x", "reference": "warm"},
    ],
)
@pytest.mark.parametrize("step", ["rehearse", "confirm"])
def test_what_cannot_be_done_is_refused_in_a_sentence_and_leaves_nothing(local, fields, step):
    site, client = local
    answer = post(client, f"/operate/farm/n1/{step}", **fields)
    assert answer.status_code == 400
    assert "This cannot be done" in answer.text
    assert commands(site) == []


def test_a_new_sensor_beside_a_silent_one_is_proposed_as_its_replacement(local):
    """lux-9 is sent in readings since lux-2 fell silent, and nobody has announced it."""
    site, client = local
    client.get("/proposals")  # the ear learns which sensors are known
    assert site.ear._link.filters == {"opid/1/farm/n2/reading/+"}
    reading = Reading(1, 1, 0, {"temp-1": 1.0, "lux-9": 3.0})
    site.ear._hear(Delivery("opid/1/farm/n2/reading/box", encode(reading), 0, False, None))
    text = client.get("/proposals").text
    assert "<strong>lux-9</strong> appeared" in text
    fields = {"what": "replace", "sensor": "lux-9", "role": "lux", "replaces": "lux-2"}
    told = post(client, "/operate/farm/n2/rehearse", **fields)
    assert told.status_code == 200, told.text
    assert "lux-9 is measured first" in told.text


def test_unsure_instances_are_asked_for_as_long_as_a_node_remembers_them(local):
    site, client = local
    prediction = hear(site.ear, seq=5, confidence=0.55)
    site.ear._heard.clear()
    topic = "opid/1/farm/n1/prediction"
    site.ear._hear(Delivery(topic, encode(prediction), 0, False, None))
    assert 'type="checkbox" name="instance" value="box 1 5"' in client.get("/label/farm/n1").text
    site.ear._heard["farm", "n1"].count += LABELLED_WITHIN
    assert "box 1 5" not in client.get("/label/farm/n1").text.partition("</form>")[2]


# -- without the extra -----------------------------------------------------------------------------


def test_a_gateway_without_the_extra_says_which_one_is_missing(tmp_path):
    """Whoever installed `edge-opid[gateway]` has no starlette."""
    (tmp_path / "gateway.toml").write_text(TOML)
    hide = (
        "import sys\n"
        "for name in ('starlette', 'uvicorn', 'jinja2'): sys.modules[name] = None\n"
        "from gateway.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    for words in (["web"], ["run", "--web"]):
        done = subprocess.run(
            [sys.executable, "-c", hide, words[0], str(tmp_path / "gateway.toml"), *words[1:]],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 2
        assert "pip install 'edge-opid[web]'" in done.stderr
    checked = subprocess.run(
        [sys.executable, "-c", hide, "--help"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


def test_a_node_without_a_configuration_is_shown_what_is_on_the_broker(local):
    """The list of `opid-node discover`, escaped, and for half a minute only."""
    site, client = local
    assert 'href="/discover/farm/n3"' in client.get("/node/farm/n3").text
    assert "No other devices have been heard" in client.get("/discover/farm/n3").text
    assert post(client, "/discover/farm/n3").headers["location"] == "/discover/farm/n3"
    assert "#" in site.ear._link.filters
    topic, said = "esp-1/sensor/<b>air</b>/state", b"21.5"
    site.ear._hear(Delivery(topic, said, 0, False, None))
    assert "s left" in client.get("/discover/farm/n3").text
    site.ear._home_until_s = 1.0  # long ago
    site.ear._end_discovery()
    text = client.get("/discover/farm/n3").text
    assert "1 sensor on 1 topic." in text
    assert "[[foreign]]\nfilter = &#34;esp-1/sensor/&lt;b&gt;air" in text
    assert "#" not in site.ear._link.filters
    assert commands(site) == []


def test_the_lanes_of_a_new_node_begin_with_it_and_not_a_day_before(local):
    """A node of two minutes was a sliver at the right edge of two years."""
    _, client = local
    for hours in (24, 730 * 24):
        lanes = client.get(f"/node/farm/n1/lanes?hours={hours}").text
        widths = [float(found) for found in re.findall(r'width="([\d.]+)"', lanes)]
        assert max(widths) > 100.0, f"of {node_page.WIDTH}"


def test_what_to_type_is_shown_as_code(local, monkeypatch):
    """Backticks are for Markdown: here people saw them. And `<` must stay text."""
    _, client = local
    told = {"reason": "unknown-sensor", "by": "node", "count": 2, "example": ""}
    told |= {"what": "A value <b> is not known.", "do": "Add it to `node.toml <b>`."}
    monkeypatch.setattr(node_page, "refusals", lambda *_: [told])
    shown = client.get("/node/farm/n1").text
    assert "A value &lt;b&gt; is not known." in shown
    assert "Add it to <code>node.toml &lt;b&gt;</code>." in shown
    assert "`" not in shown
