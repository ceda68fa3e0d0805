"""The other documented way to have a node: an environment of its own, with pip.

On a machine as it comes from Debian, of this release or the one before, whose paho-mqtt is too old
for the package: the lines of the pages are typed as the user pi. Install, devices that are already
there, upgrade, a TFLite file with the runtime that this Python has, uninstall.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from edge_opid.config.service import parse_config
from edge_opid.node.state import NodeState
from edge_opid.wire import Channel, Prediction
from emulation import world
from emulation.architectures import Architecture
from emulation.image import OLDER
from emulation.machine import MachineError
from emulation.pages import NODE, RASPBERRY_PI, RUNTIME, SERVE, TFLITE, UPGRADE, WITH_PIP
from emulation.trials import GONE, UNIT, WAIT_S, Found, Teller, Trials, computes
from firmware_sim.live.processes import wait_until
from gateway.tflite import matrix_to_tflite

PIP = "/opt/opid-node/bin/pip"


def with_pip(trials: Trials, architecture: Architecture, release: str) -> Iterator[Found]:
    """Every line, in order, and what the node does after it."""
    machine = trials.machine
    yield Found("power on to a shell", f"{machine.wait_ready():.0f} s")
    trials.fetch_packages()
    machine.run("! command -v cc && ! command -v gcc")
    yield from trials.documented(RASPBERRY_PI, WITH_PIP[architecture.debian])
    yield Found("installed", ", ".join(installed(trials)))
    yield computes(trials.typed("sudo opid-node selftest"))
    yield trials.is_up()
    trials.open_broker()
    yield trials.first_prediction()
    yield from trials.documented(NODE, "Devices you already have")
    yield from trials.documented(UPGRADE, "Upgrade")
    yield trials.is_up()
    if architecture.debian == "arm64" or release == OLDER:  # 32 bits have no runtime since then
        machine.run("cp /mnt/dist/model.tflite /home/pi/")
        yield from trials.documented(TFLITE, RUNTIME[release])
        yield from trials.documented(TFLITE, SERVE)
        yield serves_file(trials)
    yield from trials.documented(UPGRADE, "Uninstall")
    machine.run(f"{GONE} && ! systemctl cat {UNIT} && ! getent passwd {UNIT}")
    yield Found("uninstalled", "nothing left")


def installed(trials: Trials) -> list[str]:
    """What the environment has of ours and of what we need, with versions."""
    names = ("edge-opid", "numpy", "paho-mqtt", "msgpack", "pynacl")
    lines = trials.typed(f"{PIP} list --format=freeze").splitlines()
    return [line for line in lines if line.lower().startswith(names)]


def serves_file(trials: Trials) -> Found:
    """A prediction comes from the runtime, within the memory of the unit."""
    machine = trials.machine
    machine.run(f"systemctl stop {UNIT} && rm -r {world.STATE}/*", seconds=WAIT_S)
    trials.write("/etc/opid-node/node.toml", world.settings(tflite="model.tflite"))
    machine.run(f"systemctl start {UNIT}", seconds=WAIT_S)
    with ExitStack() as stack:
        topic = str(trials.topics.to(Channel.PREDICTION))
        ear = stack.enter_context(trials.listening(topic))
        Teller(stack.enter_context(trials.source("tflite"))).tell()
        wait_until(lambda: ear.heard[Channel.PREDICTION], "a prediction", WAIT_S)
        said = ear.last(Channel.PREDICTION, Prediction)
    if said.predictor != "tflite":
        raise MachineError(f"the file is not served: {said}")
    runtime = trials.typed(f"{PIP} list | grep -iE 'litert|tflite'").split()
    figure = f"{' '.join(runtime)}, {trials.memory_peak():.1f} MB at most"
    return Found("serves a .tflite file", figure)


def model_file() -> bytes:
    """A predictor for the world's sensors, as a gateway exports it."""
    columns = NodeState(parse_config(world.settings(), {}).node).columns
    weights = [[1.0, -1.0]] * len(columns)
    return matrix_to_tflite(weights, list(columns), world.CLASSES)
