"""Whose the files become that root's `init` made, and whose they never become."""

from __future__ import annotations

import os
import pwd

import pytest

from gateway.setup import owners


@pytest.fixture
def given(tmp_path, monkeypatch):
    """A folder that `init` has left, and the names of the files that were given away."""
    for name in ("keys/gateway.key", "mosquitto/passwords", "mosquitto/acl"):
        path = tmp_path / "fleet" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    found = []
    monkeypatch.setattr(owners, "_account", lambda _: pwd.getpwuid(0))
    monkeypatch.setattr(owners.os, "chown", lambda path, *_, **__: found.append(path.name))
    return tmp_path / "fleet", found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_each_secret_is_given_to_whoever_must_read_it(given):
    folder, found = given
    assert owners.give_to_services(folder) == []
    assert found == ["gateway.key", "passwords", "acl"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_to_a_file_of_roots_is_not_followed(given, tmp_path, what):
    """The service may write beside its keys: a link it left there would be given away by root."""
    folder, found = given
    secret = tmp_path / "root" / "shadow"
    secret.parent.mkdir()
    secret.write_text("x")
    if what == "file":
        (folder / "keys" / "shadow").symlink_to(secret)
    else:
        (folder / "keys" / "gateway.key").unlink()
        (folder / "keys").rmdir()
        (folder / "keys").symlink_to(secret.parent)
    owners.give_to_services(folder)
    assert "shadow" not in found
    assert found[-2:] == ["passwords", "acl"]
