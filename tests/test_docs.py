"""What the pages name is there: tests, commands, files."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from html import escape
from pathlib import Path

import pytest
from support.web_town import browser

from benchmarks.reference.__main__ import PAGES
from benchmarks.reference.diagrams import diagrams
from edge_opid import reasons as node_reasons
from edge_opid.cli import main as opid_node
from edge_opid.cli.parser import parser as node_parser
from edge_opid.config.service import load_config
from edge_opid.config.starting_file import starting_file
from edge_opid.wire import MESSAGES_ON
from firmware_sim.cli import parser as simulator
from gateway import reasons as gateway_reasons
from gateway.__main__ import main as opid_gateway
from gateway.cli.parser import parser as gateway_parser
from gateway.store import FleetStore

ROOT = Path(__file__).resolve().parents[1]
PROMPT = r"(?:\w+@\w+:~ )?\$ (?:sudo )?(?:/opt/[\w-]+/bin/)?"
FETCHED_ELSEWHERE = re.compile(
    r'<(?:script|link|img|source|iframe)\b[^>]*\b(?:src|srcset|href)="(?:https?:)?//'
)
TYPED = re.compile(rf"(?m)^{PROMPT}(opid-(?:node|gateway|sim) .*)$")


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_every_test_that_the_page_of_attacks_names_exists() -> None:
    """A test is renamed or deleted, and the page goes on promising it."""
    named = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", page("docs/attacks.md")))
    defined = {
        (file.name, name)
        for file in (ROOT / "tests").glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.M)
    }
    assert len(named) > 50
    assert named - defined == set()


def test_every_command_that_a_page_names_is_a_verb_of_the_makefile() -> None:
    """A verb is renamed, and a figure can no longer be repeated."""
    verbs = set(re.findall(r"^([a-z-]+):.*##", page("Makefile"), re.M))
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    named = {
        verb for each in pages for verb in re.findall(r"`make ([a-z-]+)", each.read_text("utf-8"))
    }
    assert {"bench-update", "soak"} <= named
    assert named - verbs == set()


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_what_the_code_says(name) -> None:
    """A key, an option, a message or a metric changes, and its page does not: `make reference`."""
    assert page(f"docs/{name}") == PAGES[name]()


def test_the_reference_has_every_key_message_and_verb() -> None:
    """A walk over the code that finds nothing, and a page that is rightly empty."""
    keys = re.findall(r"(?m)^\| `(\w+)` \|", page("docs/reference/configuration.md"))
    assert {"site", "silence_s", "knots", "trusted_proxies"} <= set(keys)
    assert len(keys) > 90
    kinds = re.findall(r"(?m)^### (\S+)$", page("docs/reference/messages.md"))
    wired = {kind.kind for kinds in MESSAGES_ON.values() for kind in kinds} | {"desired"}
    assert set(kinds) == wired
    assert "### opid-gateway sensor deploy" in page("docs/reference/commands.md")
    assert "`died of a bug`" in page("docs/reference/logs.md")
    assert "`opid_node_accuracy_ratio`" in page("docs/reference/metrics.md")


def test_every_argument_of_every_command_says_what_it_is_for() -> None:
    """An option is added without a help text, and `--help` shows its name alone."""
    rows = re.findall(r"(?m)^\| `.*\|$", (ROOT / "docs/reference/commands.md").read_text("utf-8"))
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("|  |")] == []


def test_the_site_is_built_without_a_warning_and_asks_no_other_host(tmp_path) -> None:
    """A page, a link or an anchor goes; or a diagram's script comes from somebody else's server."""
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    command += ["--site-dir", str(tmp_path / "site")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=280, check=False
    )
    assert (built.returncode, built.stderr) == (0, "")
    assert (tmp_path / "site/decisions/index.html").is_file()
    assert (tmp_path / "site/search/search_index.json").is_file()
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 80
    assert [each for each in pages if FETCHED_ELSEWHERE.search(each.read_text("utf-8"))] == []
    pytest.importorskip("playwright", reason="what scripts fetch is seen by a browser only")
    asked = []
    with browser() as chromium:
        shown = chromium.new_page()
        shown.on("request", lambda request: asked.append(request.url))
        for name in ("index", "architecture", "gateway"):
            shown.goto(f"file://{tmp_path}/site/{name}.html", wait_until="networkidle")
    assert any(url.endswith("images/architecture-1.svg") for url in asked)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_a_picture_is_drawn_from_the_diagram_that_its_page_has() -> None:
    """A diagram is corrected, and the site goes on showing the old one: `make diagrams`."""
    assert len(diagrams()) == 5
    for picture, text in diagrams().items():
        assert f"<desc>{escape(text)}</desc>" in picture.read_text("utf-8"), picture.name


def test_the_index_of_decisions_has_each_of_them() -> None:
    """A decision is written, and nobody finds it."""
    listed = re.findall(r"\]\((\d{4}-[^)]+\.md)\)", page("docs/decisions/README.md"))
    assert listed == sorted(each.name for each in (ROOT / "docs/decisions").glob("[0-9]*.md"))


def test_every_command_on_a_page_is_one_that_can_be_typed() -> None:
    """An option is renamed, and pages go on telling people to type the old one."""
    parsers = {
        "opid-node": node_parser(),
        "opid-gateway": gateway_parser(),
        "opid-sim": simulator(),
    }
    typed = [
        (each, line)
        for each in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for line in TYPED.findall(joined(each.read_text("utf-8")))
        if "decisions" not in each.parts
    ]
    assert len(typed) > 40
    for each, line in typed:
        words = shlex.split(re.split(r" [|>&#] ?", f"{line} ")[0], comments=True)
        try:
            parsers[words[0]].parse_args(words[1:])
        except SystemExit:
            pytest.fail(f"{each.name}: {line}")


def test_every_name_that_troubleshooting_explains_is_one_that_is_counted() -> None:
    """A reason is renamed, and whoever looks for it finds an explanation of nothing."""
    names = r"`((?:refused|label|broker|retained|foreign|unknown|session)-[a-z-]+)`"
    told = set(re.findall(names, page("docs/troubleshooting.md")))
    tables = (*node_reasons.TABLES, *gateway_reasons.TABLES)
    counted = {each.value for table in tables for each in table}
    assert len(told) > 12
    assert told - counted == set()


def test_uninstalling_leaves_nothing_of_what_init_made(tmp_path) -> None:
    """A later init makes one file more, and the page does not."""
    root = tmp_path / "machine"
    words = ["init", "--class", "a", "--class", "b", "--root", str(root), "--seconds", "1"]
    assert opid_node(words) == 0
    made = [each for each in root.rglob("*") if "opid" in each.name]
    assert len(made) >= 3
    for later in ("opt", "var/cache"):  # the environment, which pip made; the program, compiled
        (root / later / "opid-node").mkdir(parents=True)
    link = root / "usr/local/bin/opid-node"  # by docs/raspberry-pi.md
    link.parent.mkdir(parents=True)
    link.symlink_to("/opt/opid-node/bin/opid-node")
    for line in re.findall(r"(?m)^pi@north:~ \$ sudo (rm .*)$", page("docs/upgrade.md")):
        words = [f"{root}{word}" if word.startswith("/") else word for word in shlex.split(line)]
        subprocess.run(words, check=True, timeout=10)
    left = [each for each in root.rglob("*") if each.is_file() or each.is_symlink()]
    assert [each for each in left if "opid" in each.name] == []


def test_every_package_says_where_to_start_and_its_links_lead_somewhere() -> None:
    """A folder is moved, and its neighbours' pages lead nowhere."""
    for package in ("edge_opid", "gateway", "firmware_sim", "benchmarks", "tests"):
        text = page(f"{package}/README.md")
        targets = re.findall(r"\]\(([^)#:\s]+)", text)
        assert targets
        assert [each for each in targets if not (ROOT / package / each).exists()] == []
        modules = re.findall(r"`(\w+/)`", text)
        assert [each for each in modules if not (ROOT / package / each).is_dir()] == []


@pytest.mark.parametrize("kind", ["example", "init"])
def test_the_page_about_tflite_turns_serving_on_in_every_file_we_hand_out(tmp_path, kind) -> None:
    """Its line appended a second [serve], which no TOML file may have."""
    shell = re.findall(r"(?m)^pi@north:~ \$ (.*)$", page("docs/tflite.md"))
    (line,) = [each for each in shell if "sed -i" in each]
    file = tmp_path / "node.toml"
    made = starting_file(site="s", node="n", classes=("a", "b"), host="localhost", port=1883)
    file.write_text(page("docs/node.example.toml") if kind == "example" else made)
    command = line.replace("/etc/opid-node", str(tmp_path)).replace("sudo ", "")
    subprocess.run(command, shell=True, check=True, capture_output=True, timeout=10)
    assert load_config(file, {}).serve_tflite == tmp_path / "model.tflite"


def joined(text: str) -> str:
    """Commands of two lines as one."""
    return text.replace("\\\n", "")


def test_the_page_of_archives_can_be_followed(tmp_path, monkeypatch) -> None:
    """Its mapping and its commands as printed, on a fleet and an archive of those names."""
    from support.archives import rows, write_fleet, write_parquet  # noqa: PLC0415 - with pyarrow

    write_fleet(tmp_path)
    write_parquet(tmp_path / "years", rows(300))
    text = page("docs/archive.md")
    (tmp_path / "mapping.toml").write_text(text.split("```toml\n")[1].split("```")[0])
    commands = re.findall(r"(?m)^\$ opid-gateway (.+)$", text)
    assert len(commands) == 3
    monkeypatch.chdir(tmp_path)
    for command in commands:
        assert opid_gateway(shlex.split(command)) == 0, command
    with FleetStore.open(f"sqlite:///{tmp_path}/gateway.sqlite") as store:
        assert {each.archive for each in store.archives("air")} == {"years"}
