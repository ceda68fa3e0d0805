"""Whoever catches two kinds of error has caught them all."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from edge_opid.errors import ConfigError, OpidError, RefusedError
from edge_opid.link import LinkError
from edge_opid.source import SourceError, SpoolError, SpoolFullError
from edge_opid.store import StoreError

NEEDS_A_LIBRARY = ("edge_opid.river", "edge_opid.sklearn")


def every_error(package: str) -> set[type]:
    """Each class of the package below `OpidError`, wherever it is defined."""
    path = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(path, f"{package}."):
        if module.name not in NEEDS_A_LIBRARY and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, left = set(), [OpidError]
    while left:
        below = left.pop().__subclasses__()
        left += below
        found |= {each for each in below if each.__module__.startswith(f"{package}.")}
    return found


@pytest.mark.parametrize(("package", "at_least"), [("edge_opid", 11), ("gateway", 8)])
def test_every_error_was_either_refused_with_a_reason_or_misconfigured_with_a_key(
    package, at_least
):
    """A tenth error of a new module that a command line does not know would end it in a trace."""
    if package == "gateway":
        pytest.importorskip("sqlalchemy", reason="the gateway extra is not installed")
    errors = every_error(package)
    assert len(errors) >= at_least
    neither = [each for each in errors if not issubclass(each, RefusedError | ConfigError)]
    assert neither == []


@pytest.mark.parametrize(
    ("error", "also", "reason"),
    [
        (SpoolError(28, "no room"), OSError, "disk"),
        (StoreError("locked", "another process has it", errno=11), OSError, "locked"),
        (LinkError("no broker"), ConnectionError, "link"),
        (SpoolFullError("the node is away"), RuntimeError, "full"),
        (SourceError("this source is closed"), RuntimeError, "closed"),
    ],
)
def test_a_refusal_is_also_what_a_python_user_would_catch(error, also, reason):
    """`OSError` reads two arguments as number and text: the sentence must survive that."""
    assert isinstance(error, RefusedError)
    assert isinstance(error, also)
    assert error.reason == reason
    assert str(error) in error.args
