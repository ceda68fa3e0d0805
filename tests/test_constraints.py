"""The versions we say we run on were run: the lowest, and the newest by their hashes."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
NEWEST = {
    "newest.txt": ("dev", "river"),
    "newest-litert.txt": ("litert",),
    "newest-tflite.txt": ("tflite",),
}


def asked_for(*extras: str) -> list[Requirement]:
    """Other people's packages that we, with these extras, ask for."""
    given = PROJECT["project"]["optional-dependencies"]
    found = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    for extra in extras:
        found += given[extra]
    asked = [Requirement(each) for each in found]
    inner = {name for each in asked if each.name == "edge-opid" for name in each.extras}
    if inner - set(extras):
        return asked_for(*sorted({*extras, *inner}))
    return [each for each in asked if each.name != "edge-opid"]


def pinned(name: str) -> dict[str, Version]:
    """The versions in a file of `constraints/`."""
    text = (ROOT / "constraints" / name).read_text("utf-8")
    found = re.findall(r"^([a-z0-9.-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {canonicalize_name(package): Version(number) for package, number in found}


def test_every_lower_bound_is_a_version_that_the_suite_was_run_with():
    """Somebody writes `>=` from memory: the bound must be the version in `lowest.txt`."""
    lowest = pinned("lowest.txt")
    for each in asked_for("dev", "litert", "tflite"):
        floors = [Version(s.version) for s in each.specifier if s.operator in (">=", "==")]
        if not floors and any(s.operator == "<" for s in each.specifier):
            continue  # an upper bound of something whose lower one stands elsewhere
        assert floors == [lowest[canonicalize_name(each.name)]], each


@pytest.mark.skipif(Path(sys.prefix).name != "lowest", reason="`make test-lowest` runs this")
def test_the_run_with_the_lowest_versions_has_exactly_those():
    """If pip chose otherwise than it was asked, a green run would prove nothing."""
    lowest = pinned("lowest.txt")
    names = {canonicalize_name(each.name) for each in asked_for("dev")}
    assert {n: Version(version(n)) for n in names} == {n: lowest[n] for n in names}


@pytest.mark.parametrize("name", NEWEST)
def test_every_locked_package_has_a_hash_and_names_no_index(name):
    """A file that names an index sends everybody there; a version without a hash is anything."""
    text = (ROOT / "constraints" / name).read_text("utf-8")
    assert "://" not in text
    assert not re.findall(r"^\s*--(?!hash=sha256:[0-9a-f]{64}\b)", text, re.MULTILINE)
    entries = re.split(r"\n(?=[a-z0-9])", text)[1:]
    assert len(entries) == len(pinned(name))
    assert all("--hash=sha256:" in entry for entry in entries)


@pytest.mark.parametrize("name", NEWEST)
def test_every_locked_version_is_within_the_bounds_of_pyproject(name):
    """The bounds were moved and the lock was not: `make lock` is missing."""
    newest = pinned(name)
    for each in asked_for(*NEWEST[name]):
        assert newest[canonicalize_name(each.name)] in each.specifier, each
