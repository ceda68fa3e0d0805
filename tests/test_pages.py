"""README, tutorial and how-to pages, as a reader types them: every command and every file.

`support/pages.py` says how a page becomes a script, and which of its commands are typed elsewhere.
"""

from __future__ import annotations

import inspect
import json
import re
import tempfile
import tomllib
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from textwrap import dedent

import pytest
from support.pages import BLOCK, ROOT, World, shown_below

from edge_opid.source import connect
from gateway.cli.members import HEADINGS, row_of
from gateway.cli.output import Terminal

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
def world() -> Iterator[World]:
    """In a folder with a short name: the path of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="pages-") as folder:
        yield World(Path(folder))


@pytest.mark.timeout(600)  # it takes seconds, on a machine that is not busy
def test_the_tutorial_ends_with_a_node_that_uses_its_new_sensor(world) -> None:
    """A command is renamed or a file no longer loads, and the first evening ends in step three."""
    faster = {  # what a reader waits for, this waits for as well: until it is so
        "sleep 10": "until_true [ -e office-status.json.watch ]",
        "seq 40": "seq 12",
        "sleep 2\n": "sleep 0.3\n",  # there is another reading by then
        "sleep 60\n" + STATUS: UNTIL.format('"silent": ..plug-1') + "\n" + kept("dead"),
        "sleep 30\n" + STATUS: UNTIL.format("sensor-measured") + "\n" + kept("replaced"),
        "done\n" + STATUS: "done\n" + kept("learned"),
        "mosquitto -p 1883 &": "mosquitto -p 1883 2> mosquitto.log &\nuntil_true answers 1883",
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
    "a first node": (
        ["docs/node.md"],
        {
            "discover |": "discover --seconds 3 |",
            "watch 'zigbee2mqtt/#'": "watch --seconds 99 --count 1 'zigbee2mqtt/#'",
        },
    ),
    "a node": (
        ["docs/labels.md", "docs/troubleshooting.md", "docs/tflite.md", "docs/upgrade.md"],
        {
            "watch --seconds 30": "watch --seconds 1",
            "best = fit_best": GIVEN + "best = fit_best",
            "\nsudo opid-node check /etc/opid-node/node.toml    # with [serve]": SERVED,
        },
    ),
    "a fleet": (
        [f"docs/{page}.md" for page in ("gateway", "web", "replace", "homeassistant", "upkeep")],
        {"--broker-host pi4.local": "--broker-host pi4.local --broker-port 1883"},
    ),
    "a broker that serves others": (["docs/beside.md"], {}),
    "scenarios": (["docs/scenarios.md"], {}),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("story", STORIES)
def test_what_a_page_tells_to_type_does_what_it_says(world, story) -> None:
    """A command is renamed, a key is gone, a step is missing: whoever follows the page is stuck."""
    assert world.run(*STORIES[story])


OF_OTHERS = {
    "docs/raspberry-pi.md": "make pi, and tests/test_emulation.py reads it",
    "docs/demo.md": "tests/test_sim_demo.py",
    "docs/recipes/README.md": "tests/test_recipes.py runs every recipe",
    "docs/archive.md": "tests/test_docs.py",
    "docs/brokers.md": "make brokers, tests/test_broker_check.py",
    "docs/several-gateways.md": "make sites, tests/test_sites_live.py",
}
"""Pages of these two kinds that are followed elsewhere, and where."""


def test_the_table_of_gateways_on_the_page_is_the_one_that_is_printed() -> None:
    """Only PostgreSQL has two of them: a column is added, and nobody sees it on the page."""
    began_ms = 1_794_947_465_000
    found = [
        {"process": "process 811 on 'pi4'", "silent_ms": 400, "sites": ["bay", "mill"]},
        {"process": "process 902 on 'nuc'", "silent_ms": 700, "sites": ["hill"]},
    ]
    screen = StringIO()
    Terminal(screen, screen).table(HEADINGS, [row_of({"since_ms": began_ms, **e}) for e in found])
    page = shown_below("docs/several-gateways.md", "opid-gateway members")
    assert page.pattern.fullmatch(screen.getvalue()), screen.getvalue()


def test_every_page_to_learn_from_and_every_how_to_is_followed_by_a_test() -> None:
    """A page is added, and nobody ever types what it says."""
    listed = re.search(r"  - Learn:(.*?)  - Reference:", (ROOT / "mkdocs.yml").read_text(), re.S)
    assert listed is not None
    pages = {f"docs/{name}" for name in re.findall(r": (\S+\.md)\n", listed[1])}
    typed = {"docs/tutorial.md"}.union(*(pages for pages, _ in STORIES.values()))
    assert len(pages) > 15
    assert pages - typed == set(OF_OTHERS)


def test_no_command_hides_where_nobody_types_it() -> None:
    """An indented line is code, too, and no block: the shell would never see it."""
    hidden = re.compile(r"(?m)^    (?:\$ )?(?:sudo )?(?:opid-|mosquitto_pub|systemctl)")
    for page in {"docs/tutorial.md"}.union(*(pages for pages, _ in STORIES.values())):
        text = BLOCK.sub("", (ROOT / page).read_text("utf-8"))
        assert not hidden.search(text), page


def test_every_key_that_a_snippet_sets_is_one_that_is_known() -> None:
    """A key is renamed, and a page goes on telling people to write the old one."""
    reference = (ROOT / "docs/reference/configuration.md").read_text("utf-8")
    known = set(re.findall(r"(?m)^\| `(\w+)` \|", reference))
    snippets = [
        block["text"]
        for page in {page for pages, _ in STORIES.values() for page in pages}
        for block in BLOCK.finditer((ROOT / page).read_text("utf-8"))
        if block["kind"] == "toml" and page != "docs/scenarios.md"  # a language of its own
    ]
    assert len(snippets) >= 5
    for snippet in snippets:
        for table in tomllib.loads(dedent(snippet)).values():
            for each in table if isinstance(table, list) else [table]:
                assert set(each) <= known, snippet


def test_a_script_of_ones_own_may_say_everything_that_the_page_says() -> None:
    """An argument of `connect` is renamed. (`tests/test_source_cron.py` runs its first lines.)"""
    page = (ROOT / "docs/node.md").read_text("utf-8")
    (call,) = re.findall(r"(?m)^    connect\((?:.|\n)*?\)$", page)
    eval(dedent(call), {"connect": inspect.signature(connect).bind})
