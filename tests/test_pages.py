"""README, tutorial and how-to pages, as a reader types them: every command and every file.

`support/pages.py` says how a page becomes a script, and which of its commands are typed elsewhere.
"""

from __future__ import annotations

import json
import re

import pytest
from support.pages import World

GIVEN = """\
import numpy as np
chance = np.random.default_rng(1)
Xs, Xa, y = chance.normal(size=(60, 2)), chance.normal(size=(60, 1)), np.arange(60) % 2
W_s = chance.normal(size=(2, 2))
"""
SERVED = """
opid-node check > said 2>&1 || grep 'no TFLite runtime is installed' said
sed -i 's/^tflite/# tflite/' /etc/opid-node/node.toml"""
UNTIL = "until_true grep -q '{}' office-status.json"
STATUS = "opid-node status office.toml\n"


def kept(step: str) -> str:
    """What `status` reads at this step of the tutorial, for us to look at."""
    return f"opid-node status office.toml > {step}.txt; cp office-status.json {step}.json\n"


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


@pytest.mark.timeout(600)  # it takes seconds, on a machine that is not busy
def test_the_tutorial_ends_with_a_node_that_uses_its_new_sensor(world) -> None:
    """A command is renamed or a file no longer loads, and the first evening ends in step three."""
    faster = {  # what a reader waits for, this waits for as well: until it is so
        "sleep 10": "until_true [ -e office-status.json.watch ]",
        "seq 40": "seq 12",
        "sleep 2\n": "",
        "sleep 60\n" + STATUS: UNTIL.format('"silent": ..plug-1') + "\n" + kept("dead"),
        "sleep 30\n" + STATUS: UNTIL.format("sensor-measured") + "\n" + kept("replaced"),
        "done\n" + STATUS: "done\n" + kept("learned"),
        "mosquitto -p 1883 &": "mosquitto -p 1883 2> mosquitto.log &",
        "opid-node run office.toml &": "opid-node run office.toml 2>> node.log &",
        "--port 1883 &": "--port 1883 --every 0.1 2> devices.log &",
    }
    world.run(["docs/tutorial.md"], faster)
    home = world.folder / "home"
    learned, dead, replaced = (
        json.loads((home / f"{step}.json").read_text()) for step in ("learned", "dead", "replaced")
    )
    # Of a dozen labels within seconds an accuracy is luck: that they were learned is not.
    assert learned["counts"]["learned"] >= 5
    assert dead["silent"] == ["plug-1"]
    assert "silent" not in replaced
    assert "plug-2 joins" in replaced["noted"]["sensor-measured"]["why"]


STORIES = {
    "a first node": (["docs/node.md"], {
        "discover |": "discover --seconds 1 |",
        "watch 'zigbee2mqtt/#'": "watch --seconds 1 'zigbee2mqtt/#'",
    }),
    "a node": (
        ["docs/labels.md", "docs/troubleshooting.md", "docs/tflite.md", "docs/upgrade.md"],
        {"watch --seconds 30": "watch --seconds 1", "best = fit_best": GIVEN + "best = fit_best",
            "\nsudo opid-node check /etc/opid-node/node.toml    # with [serve]": SERVED,},
    ),
    "a fleet": (
        [f"docs/{page}.md" for page in ("gateway", "web", "replace", "homeassistant", "upkeep")],
        {"--broker-host pi4.local": "--broker-host pi4.local --broker-port 1883"},
    ),
    "a broker that serves others": (["docs/beside.md"], {}),
    "scenarios": (["docs/scenarios.md"], {"silent_death  ": "silent_death --readings 60 --nodes 2", "--seeds 10000": "--seeds 2"}),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("story", STORIES)
def test_what_a_page_tells_to_type_does_what_it_says(world, story) -> None:
    """A command is renamed, a key is gone, a step is missing: whoever follows the page is stuck."""
    print(world.run(*STORIES[story]))
