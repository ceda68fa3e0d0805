"""`opid-node selftest`: the page that an owner of a Raspberry Pi reads, or sends to us."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edge_opid import native
from edge_opid.cli import main, selftest

PAGE = Path(__file__).parent.parent / "docs" / "raspberry-pi.md"
OF_ITS_MAKER = {"opid-node", "libraries"}  # versions, which say themselves what they are


@pytest.fixture
def page(tmp_path, monkeypatch, capsys):
    """What is printed for a node whose state is in `tmp_path / "state"`, by its names."""
    (tmp_path / "state").mkdir()
    file = tmp_path / "node.toml"
    file.write_text(
        '[node]\nsite = "farm"\nnode = "n1"\nclasses = ["dry", "damp"]\n'
        f'[state]\nfolder = "{tmp_path / "state"}"\n[[sensors]]\nid = "a"\n'
    )
    monkeypatch.setattr(selftest, "READINGS", 20)
    monkeypatch.setattr(selftest, "ROUNDS", 1)

    def printed(code):
        assert main(["selftest", str(file)]) == code
        return {
            line[:12].rstrip(): line[13:] for line in capsys.readouterr().out.splitlines() if line
        }

    return printed


def test_every_line_is_one_that_the_page_explains(page):
    """A line is added, and whoever has a slow card cannot tell which of them says so."""
    _, _, below = PAGE.read_text("utf-8").partition("| line | what it says |\n|---|---|\n")
    cells = re.findall(r"(?m)^\| ([\w ,]+) \|", below.partition("\n\n")[0])
    explained = [name for cell in cells for name in cell.split(", ")]
    assert [name for name in page(0) if name not in OF_ITS_MAKER] == explained


def test_it_measures_where_the_state_is_and_leaves_nothing_there(page, tmp_path):
    """Another folder may be on another disk; a file that stayed would be found by the node."""
    found = page(0)
    assert found["sync"].startswith(f"{tmp_path / 'state'}: ")
    assert found["sync"].endswith(" of 50 times 4 KiB")
    assert found["golden bits"] == "ok" or "compiled" not in native.available
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.skipif("compiled" not in native.available, reason="no compiler was here")
def test_other_bits_than_everywhere_are_told_and_fail(page, monkeypatch):
    """A processor or a compiler rounds in its own way: its states are no longer comparable."""
    monkeypatch.setattr(selftest, "DIGESTS", dict.fromkeys(selftest.DIGESTS, "other"))
    assert page(1)["golden bits"].startswith("WRONG: WoodburyLearner, ")


def test_an_install_without_the_library_is_no_failure_and_says_so(page, monkeypatch):
    """Without a compiler it runs, and what is slow then must have a name."""
    monkeypatch.setattr(native, "available", {"numpy": native.available["numpy"]})
    found = page(0)
    assert found["kernel"] == "numpy: this install has no compiled library"
    assert found["golden bits"] == "not looked at: they are the library's"
    assert found["one reading"].startswith("numpy ")
