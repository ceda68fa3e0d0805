"""The pages on a database with a small fleet, without a process: requests go straight to them."""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the newest starlette would rather have httpx2
    from starlette.testclient import TestClient

from edge_opid.wire import InstanceId, Prediction, Status, encode, to_json
from firmware_sim.live.processes import Child
from gateway.config import parse_config
from gateway.registry import LayoutRecord, NodeRecord, OrderRecord, SensorRecord, SensorState
from gateway.registry.history import LifeRecord, MinutesRecord, Sample
from gateway.store import FleetStore
from gateway.web.access import Keys
from gateway.web.app import application
from gateway.web.book import Book
from gateway.web.ear import Ear, _Heard
from gateway.web.guard import Limits, now_ms
from gateway.web.server import load_keys
from gateway.web.site import Site
from support.mosquitto import free_port
from support.web_town import Serves

NOW_MS = now_ms()
HOUR = NOW_MS // 3_600_000
TOKEN = "t" * 43
TOML = """
[gateway]
database = "sqlite:///gateway.sqlite"
key = "gateway.key"
[[groups]]
id = "climate"
site = "farm"
classes = ["dry", "damp"]
nodes = ["n1", "n2", "n3"]
"""
LAN = '[web]\nhost = "0.0.0.0"\nhosts = ["pi.local"]\ntoken = "web.token"\n'
PROXY = '[web]\ntoken = "web.token"\nhosts = ["pi.local"]\ntrusted_proxies = ["127.0.0.1"]\n'


def sensor(name, node="n1", state=SensorState.ACTIVE, **fields):
    known = {"reference": 0.0, "scale": 1.0, "timeout_s": 60.0}
    base = {"site": "farm", "node": node, "since_ms": NOW_MS - 60_000, **known}
    return SensorRecord(
        **{**base, "id": name, "role": name.split("-")[0], "state": state, **fields}
    )


def status(**fields):
    base = {"online": True, "layout_version": 1, "model_version": 0, "time_ms": NOW_MS}
    counts = {"readings": 500, "learned": 40, "predictions": 499, "rate-limited": 3}
    accuracy = {"own": 0.91, "model": 0.87}
    return Status(**{**base, "counts": counts, "accuracy": accuracy, "version": 2, **fields})


def some_records():
    """Two nodes that spoke, one that never did; a silent sensor; an hour of history."""
    said = {"group": "climate", "gate": 8.0, "online": True, "seen_ms": NOW_MS}
    versions = {"reported_version": 2, "reported_layout": 1}
    records = []
    for node in ("n1", "n2"):
        sensors = [sensor("temp-1", node), sensor("lux-2", node)]
        if node == "n2":
            sensors[1] = sensor(
                "lux-2", node, SensorState.SILENT, reason="<script>alert(1)</script>"
            )
        described = tuple(each.description() for each in sensors)
        place = {"site": "farm", "node": node}
        hour = MinutesRecord(**place, hour=HOUR)
        for minute in range(3):
            hour = hour.with_sample(minute, Sample(0.8 + minute / 100, 60, 1, 0))
        records += [
            NodeRecord(**place, **said, **versions, status=encode(status())),
            *sensors,
            LayoutRecord(
                **place, version=1, sensors=described, vanishing=(), gate=8.0, change=0,
                at_ms=NOW_MS - 30_000,
            ),
            OrderRecord(**place, version=2, layout_version=1, payload=b"", at_ms=NOW_MS),
            hour,
            *(
                LifeRecord(
                    **place, sensor=s.id, at_ms=s.since_ms, state=s.state, role=s.role,
                    reason=s.reason,
                )
                for s in sensors
            ),
        ]  # fmt: skip
    return records


class SilentLink:
    """A link that nobody speaks on."""

    def __init__(self):
        self.filters = set()

    def subscribe(self, filters, _qos=1):
        self.filters |= set(filters)

    def unsubscribe(self, filters):
        self.filters -= set(filters)


def hear(ear, key=("farm", "n1"), seq=1, label="damp", confidence=0.61, json=False):
    """A prediction arrives, as the thread of the ear would take it."""
    prediction = Prediction(
        instance=InstanceId("box", 1, seq), time_ms=NOW_MS, label=label,
        scores={"dry": 1 - confidence, "damp": confidence}, model_version=0, layout_version=1,
        confidence=confidence,
    )  # fmt: skip
    payload = to_json(prediction) if json else encode(prediction)
    heard = ear._heard.setdefault(key, _Heard())
    heard.payload, heard.count = payload, heard.count + 1
    return prediction


@contextmanager
def opened(folder, web="", with_ear=True, url="sqlite:///gateway.sqlite"):
    """The pages and a browser: `site`, `client`."""
    (folder / "gateway.key").touch()
    (folder / "web.token").write_text(TOKEN + "\n")
    (folder / "web.token").chmod(0o600)
    text = TOML.replace("sqlite:///gateway.sqlite", url) + web
    config = parse_config(text, {}, folder / "gateway.toml")
    with FleetStore.open(config.database) as leader:
        leader.claim()
        leader.save(some_records())
    with FleetStore.open(config.database) as store:
        ear = Ear(SilentLink(), ["farm"]) if with_ear else None
        if ear is not None:
            ear.trouble = ""
        site = Site(Book(config, store), ear, load_keys(config), config.web, Limits.usual())
        base = "http://127.0.0.1:8470" if not web else "http://pi.local:8470"
        browser = {"base_url": base, "follow_redirects": False, "client": ("127.0.0.1", 50_000)}
        client = TestClient(application(site), **browser)
        yield site, client


class Pages(Serves, Child):
    """`opid-gateway web` as a process, on the database that `opened` has left in the folder."""

    def __init__(self, folder, web=""):
        self.port = free_port()
        (folder / "gateway.toml").write_text(TOML + web)
        words = ["web", str(folder / "gateway.toml"), "--port", str(self.port)]
        super().__init__("web", [sys.executable, "-m", "gateway", *words], folder / "web.log")


def logged_in(client):
    """A browser that has typed the token."""
    answer = post(client, "/login", token=TOKEN)
    assert answer.status_code == 303
    return client


def post(client, path, origin=None, **fields):
    """A form of one of our own pages, unless another origin is given."""
    headers = {"origin": str(client.base_url).rstrip("/") if origin is None else origin}
    return client.post(path, data=fields, headers={k: v for k, v in headers.items() if v})


def keys() -> Keys:
    return Keys(TOKEN)
