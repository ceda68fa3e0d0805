"""A home's sensors, each at its own pace, and a presence sensor that knows the truth.

    python -m benchmarks.home [--speeds 6000 12000] [--minutes N] [--data FOLDER]

The occupancy data becomes what devices of a home would publish: CO₂ every minute (ESPHome, a plain
number), light every five (Tasmota, nested JSON), temperature and humidity when they have changed
(zigbee2mqtt), presence when it changes and now and then again (zigbee2mqtt). A real `opid-node`
hears them through a real mosquitto, with its clock running `--speeds` times as fast; its truths
come from the presence topic and nowhere else. Every reading's prediction is compared with what was
so. Once it is configured by hand; and once by what `opid-node discover` prints after it has
listened to the same devices, with nothing but site, node and classes before it.

Beside it: the same node in this process, with exactly the times of the recording; the library
offline, fed with the last value of every sensor and the same truths; always "empty"; and the last
truth heard, which is right by definition while the presence sensor is there. The three stretches
are the three files of the data, in the order of their time.

Nothing was chosen on this data but the pace of the sensors. Aim: within a point of the library in
each stretch, at each speed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from benchmarks.common.command import add_json_option, command_line, write_json
from benchmarks.common.data import DATA
from benchmarks.common.verdict import verdict
from edge_opid import Classifier
from edge_opid.config.service import parse_config
from edge_opid.discovery.heard import Heard
from edge_opid.discovery.proposal import Known, propose, toml_lines
from edge_opid.link.background import BackgroundLink
from edge_opid.link.options import MqttOptions
from edge_opid.node.actions import Commit, Publish
from edge_opid.node.node import Node
from edge_opid.wire import Channel, InstanceId, NodeTopics, Prediction, decode
from firmware_sim.live.mosquitto import Mosquitto
from firmware_sim.live.observer import Observer
from firmware_sim.live.processes import wait_until
from firmware_sim.live.services import NodeProcess

PARTS = ("test", "train", "test2")  # in the order of their time
CLASSES = ("empty", "occupied")
PAUSE_S = 3_600  # between two parts, in which nobody speaks
VALID_S = 1_800
AHEAD_MAX = 200  # readings that wait for their predictions
AGAIN_S = 600  # a presence sensor says it again after ten minutes or so
HEAD = """
[node]
site = "home"
node = "office"
classes = ["empty", "occupied"]
rate_per_second = 100000
rate_burst = 100000
commit_s = 3600
commit_records = 128
"""
SETTINGS = f"""{HEAD}
[[sensors]]
id = "co2"
knots = 8
[[sensors]]
id = "light"
knots = 8
[[sensors]]
id = "temperature"
knots = 8
[[sensors]]
id = "humidity"
knots = 8
[[foreign]]
filter = "esphome/office/sensor/co2/state"
source = "esphome"
fields = "co2"
[[foreign]]
filter = "tele/desk/SENSOR"
source = "tasmota"
fields = {{ "BH1750.Illuminance" = "light" }}
[[foreign]]
filter = "zigbee2mqtt/climate"
source = "climate"
fields = {{ temperature = "temperature", humidity = "humidity" }}
[[truth]]
filter = "zigbee2mqtt/presence"
field = "presence"
values = {{ true = "occupied", false = "empty" }}
valid_s = {VALID_S}
"""


class Message(NamedTuple):
    """What a device publishes: when, where, and what was so."""

    at_s: float
    topic: str
    payload: bytes
    source: str  # empty: the presence sensor
    values: dict[str, float]
    present: bool
    stretch: int


def recording(data: Path, minutes: int = 0, seed: int = 0) -> list[Message]:
    """The messages of the whole home, in order; only the first `minutes` of each part, if given."""
    saved = np.load(data / "occupancy_detection.npz", allow_pickle=False)
    names = [str(name) for name in saved["feature_names"]]
    rng, found, begin_s = Random(seed), [], 0.0
    said: dict[str, float] = {}
    told, told_at = None, -math.inf
    for stretch, part in enumerate(PARTS):
        rows, truths, times = (saved[f"{name}_{part}"] for name in ("X", "y", "t"))
        for index in range(min(len(rows), minutes) if minutes else len(rows)):
            at_s = begin_s + float(times[index] - times[0])
            x = dict(zip(names, map(float, rows[index]), strict=True))
            present = bool(truths[index])

            def say(
                offset_s: float, topic: str, content: object, source: str, **values: float
            ) -> None:
                payload = content if isinstance(content, bytes) else json.dumps(content).encode()
                message = Message(at_s + offset_s, topic, payload, source, values, present, stretch)  # noqa: B023
                found.append(message)

            if present != told or at_s >= told_at + AGAIN_S * (0.5 + rng.random()):
                told, told_at = present, at_s
                state = {"presence": present, "linkquality": 90}
                say(2, "zigbee2mqtt/presence", state, "")
            co2 = round(x["CO2"], 1)
            say(10, "esphome/office/sensor/co2/state", str(co2).encode(), "esphome", co2=co2)
            if index % 5 == 0:
                light = round(x["Light"], 1)
                nested = {"Time": "", "BH1750": {"Illuminance": light}}
                say(20, "tele/desk/SENSOR", nested, "tasmota", light=light)
            climate = {
                "temperature": round(x["Temperature"], 1),
                "humidity": round(x["Humidity"], 1),
            }
            if _moved(climate, said):
                said.update(climate)
                content = {**climate, "battery": 97.0}
                say(30, "zigbee2mqtt/climate", content, "climate", **climate)
        begin_s = found[-1].at_s + PAUSE_S
    return found


def _moved(climate: dict[str, float], said: dict[str, float]) -> bool:
    steps = {"temperature": 0.1, "humidity": 0.5}
    return any(
        abs(value - said.get(name, math.inf)) >= steps[name] - 1e-9
        for name, value in climate.items()
    )


@dataclass
class Scores:
    """Accuracy in each stretch, and the hits it is made of."""

    name: str
    stretches: list[float]
    silences: int = 0

    @classmethod
    def of(
        cls,
        name: str,
        said: Iterable[str | None],
        messages: Sequence[Message],
        silences: int = 0,
    ) -> Scores:
        """From what was said of each reading; None counts as wrong."""
        hits: dict[int, list[bool]] = {}
        for label, message in zip(said, messages, strict=True):
            hits.setdefault(message.stretch, []).append(label == CLASSES[message.present])
        return cls(name, [float(np.mean(each)) for _, each in sorted(hits.items())], silences)

    def __str__(self) -> str:
        return f"| {self.name} | {' | '.join(f'{each:.4f}' for each in self.stretches)} |"


def readings(messages: Iterable[Message]) -> list[Message]:
    """The messages that are predicted about."""
    return [message for message in messages if message.source]


def offline(messages: Iterable[Message]) -> list[str | None]:
    """The library with the last value of every sensor, and the truth that stands."""
    classifier, held = Classifier(knots=8), dict[str, float]()
    said: list[str | None] = []
    truth, until_s = "", -math.inf
    for message in messages:
        if not message.source:
            truth, until_s = CLASSES[message.present], message.at_s + VALID_S
            continue
        held.update(message.values)
        said.append(classifier.predict_one(held))
        if message.at_s <= until_s:
            classifier.learn_one(held, truth)
    return said


def last_truth(messages: Iterable[Message]) -> list[str | None]:
    """What the presence sensor said last."""
    said: list[str | None] = []
    truth = None
    for message in messages:
        if message.source:
            said.append(truth)
        else:
            truth = CLASSES[message.present]
    return said


def sources_of(settings: str) -> dict[str, str]:
    """By topic, whose readings they are."""
    parsed = parse_config(settings + '[state]\nfolder = "x"\n', {}).node
    return {each.filter: each.source for each in parsed.foreign}


def proposed(messages: Sequence[Message], minutes: float = 60.0) -> str:
    """The settings that `discover` proposes after so many minutes of the recording."""
    heard = Heard()
    for message in messages:
        if message.at_s <= 60 * minutes:
            heard.add(message.topic, message.payload, retained=False, at_s=message.at_s)
    return HEAD + "\n".join(toml_lines(propose(heard, Known(classes=CLASSES)))) + "\n"


def discovered(messages: Sequence[Message], folder: Path) -> str:
    """The settings that the real `opid-node discover` prints, beside devices that play an hour."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "node.toml"
    with Mosquitto(folder / "broker") as broker:
        head = HEAD + f'[broker]\nport = {broker.port}\n[state]\nfolder = "x"\n'
        file.write_text(head + '[[sensors]]\nid = "to-be-replaced"\n')
        listening = subprocess.Popen(
            [sys.executable, "-m", "edge_opid", "discover", "--seconds", "8", str(file)],
            stdout=subprocess.PIPE,
            text=True,
        )
        devices = BackgroundLink(MqttOptions(client_id="devices", port=broker.port))
        devices.start()
        devices.wait_connected(10)
        try:
            hour = [message for message in messages if message.at_s <= 3_600]
            while listening.poll() is None:
                for message in hour:
                    devices.publish(message.topic, message.payload, qos=0)
                    time.sleep(0.01)
        finally:
            devices.stop()
            printed, _ = listening.communicate(timeout=30)
    return HEAD + printed


def in_process(
    messages: Sequence[Message], settings: str = SETTINGS
) -> tuple[list[str | None], int]:
    """The node's decisions, with exactly the times of the recording; and how many fell silent."""
    node = Node(parse_config(settings + '[state]\nfolder = "x"\n', {}).node)
    payloads: list[tuple[str, bytes]] = []
    for message in messages:
        now_ms = round(1000 * message.at_s)
        for actions in (
            node.handle(message.topic, message.payload, now_ms, None),
            node.tick(now_ms),
        ):
            for action in actions:
                if isinstance(action, Publish):
                    payloads.append((action.topic, action.payload))
                elif isinstance(action, Commit):
                    node.on_committed(now_ms)
    return _matched(payloads, messages, sources_of(settings))


def live(
    messages: Sequence[Message], speed: float, folder: Path, settings: str = SETTINGS
) -> tuple[list[str | None], int]:
    """A real node behind a real broker; its clock and this recording run `speed` times as fast."""
    topics = NodeTopics("home", "office")
    with Mosquitto(folder / "broker") as broker:
        node = NodeProcess(folder / "node", broker.port, settings, speed=speed)
        ear = Observer(
            MqttOptions(client_id="listener", port=broker.port),
            [str(topics.to(Channel.PREDICTION)), str(topics.to(Channel.EVENT))],
        )
        devices = BackgroundLink(MqttOptions(client_id="devices", port=broker.port))
        with ear, node:
            wait_until(lambda: "event=connected" in node.log(), "the node listens")
            devices.start()
            devices.wait_connected(10)
            try:
                _play(messages, speed, devices, ear)
                count = len(readings(messages))
                wait_until(
                    lambda: len(ear.heard[Channel.PREDICTION]) >= count, "the last prediction", 30
                )
            finally:
                devices.stop()
        heard = [
            (str(each.topic), each.payload)
            for channel in (Channel.PREDICTION, Channel.EVENT)
            for each in ear.heard[channel]
        ]
    return _matched(heard, messages, sources_of(settings))


def _play(
    messages: Sequence[Message], speed: float, devices: BackgroundLink, ear: Observer
) -> None:
    """Publish each message at its time; a machine that cannot keep up has an outage now and then.

    Nothing is lost so: a broker drops what a slow reader of QoS 0 leaves lying.
    """
    began, asked = time.monotonic(), 0
    for message in messages:
        delay_s = began + message.at_s / speed - time.monotonic()
        if delay_s > 0.0005:
            time.sleep(delay_s)
        stopped = time.monotonic()
        while asked - len(ear.heard[Channel.PREDICTION]) > AHEAD_MAX:
            if time.monotonic() > stopped + 60:
                raise TimeoutError(f"the node is {AHEAD_MAX} predictions behind for a minute")
            time.sleep(0.002)
        began += time.monotonic() - stopped
        asked += bool(message.source)
        if not devices.publish(message.topic, message.payload, qos=0):
            raise ConnectionError("the devices' own queue is full")


def _matched(
    heard: Iterable[tuple[str, bytes]], messages: Sequence[Message], sources: Mapping[str, str]
) -> tuple[list[str | None], int]:
    """Each reading's prediction, by its number: sources count their messages from 1."""
    found: dict[InstanceId, str] = {}
    silences = 0
    for topic, payload in heard:
        if topic.endswith("/prediction"):
            prediction = decode(payload, Prediction)
            found[prediction.instance] = prediction.label
        elif topic.endswith("/event"):
            silences += b"sensor-silent" in payload
    counts: dict[str, int] = {}
    said = []
    for message in readings(messages):
        source = sources[message.topic]
        counts[source] = counts.get(source, 0) + 1
        said.append(found.get(InstanceId(source, 0, counts[source])))
    return said, silences


def compare(data: Path, speeds: Sequence[float], minutes: int = 0) -> Iterator[Scores]:
    """Everybody's accuracy, as each is done; the library comes first."""
    messages = recording(data, minutes)
    scored = readings(messages)

    def scores(name: str, outcome: tuple[list[str | None], int]) -> Scores:
        said, silences = outcome
        return Scores.of(name, said, scored, silences)

    yield scores("library, held values, offline", (offline(messages), 0))
    yield scores("node, times of the recording", in_process(messages))
    yield scores("the same, as discover proposes", in_process(messages, proposed(messages)))
    for speed in speeds:
        with tempfile.TemporaryDirectory() as folder:
            outcome = live(messages, speed, Path(folder))
        yield scores(f"opid-node and mosquitto, {speed:g} times as fast", outcome)
        with tempfile.TemporaryDirectory() as folder:
            settings = discovered(messages, Path(folder) / "discover")
            outcome = live(messages, speed, Path(folder), settings)
        yield scores("the same, as opid-node discover printed", outcome)
    yield scores('always "empty"', (["empty"] * len(scored), 0))
    yield scores("the last truth heard", (last_truth(messages), 0))


def main() -> None:
    """Print the table, and judge the aim."""
    parser = command_line(__doc__)
    parser.add_argument("--speeds", type=float, nargs="*", default=[6000.0, 12000.0])
    parser.add_argument("--minutes", type=int, default=0, help="of each part; 0: all of it")
    parser.add_argument("--data", type=Path, default=DATA)
    add_json_option(parser)
    options = parser.parse_args()
    print("| who | " + " | ".join(PARTS) + " |\n|---|---|---|---|", flush=True)
    results = []
    for each in compare(options.data, options.speeds, options.minutes):
        results.append(each)
        print(each, flush=True)
    library = results[0]
    for each in results[1:-2]:
        behind = max(a - b for a, b in zip(library.stretches, each.stretches, strict=True))
        print(verdict(f"{each.name}, behind the library at most", behind, 0.01, at_least=False))
        print(f"         {each.silences} times a sensor was taken for dead; none was")
    write_json(options.json, [[each.name, each.stretches, each.silences] for each in results])


if __name__ == "__main__":
    main()
