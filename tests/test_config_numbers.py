"""Every number that anybody may configure is finite and within a range that works."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_config import GOOD as NODE
from test_gateway_config import GOOD as GATEWAY

from edge_opid.config.schema import Shape, kinds_of
from edge_opid.config.service import SHAPE as NODE_SHAPE
from edge_opid.config.service import parse_config as parse_node
from edge_opid.errors import ConfigError
from edge_opid.source.connect import settings_for
from gateway.config import SHAPE as GATEWAY_SHAPE
from gateway.config import parse_config as parse_gateway

DIGITS = 400 * "9"  # more than a float holds; Python's own limit for text is 4,300
ABSURD = {
    "float": ("inf", "-inf", "nan", "+nan", "1e300", "-1e300", DIGITS, 5_000 * "9"),
    "int": (str(2**63), str(-(2**63)), DIGITS, f"-{DIGITS}", 5_000 * "9", "inf", "nan"),
}


def numbers_of(shape: Shape) -> list[tuple[str, str, str]]:
    """Each section, or list, with each of its keys that is a number, and its kind."""
    tables = {**shape.sections, **{name: kinds_of(kind) for name, kind in shape.lists.items()}}
    return [
        (section, name, kind.removesuffix(" | None"))
        for section, kinds in tables.items()
        for name, kind in kinds.items()
        if kind.removesuffix(" | None") in ABSURD
    ]


def with_key(text: str, section: str, name: str, value: str) -> str:
    """The file with this key set, and without what it said before."""
    lines = [line for line in text.splitlines() if not line.startswith(f"{name} =")]
    headers = (f"[{section}]", f"[[{section}]]")
    if not any(each in lines for each in headers):
        lines.append(headers[0])
    header = next(each for each in headers if each in lines)
    lines.insert(lines.index(header) + 1, f"{name} = {value}")
    if name in ("reference", "scale"):  # one needs the other beside it
        other = {"reference": "scale", "scale": "reference"}[name]
        lines.insert(lines.index(header) + 1, f"{other} = 1.0")
    return "\n".join(lines)


FILES = [(parse_node, NODE, *each) for each in numbers_of(NODE_SHAPE)] + [
    (parse_gateway, GATEWAY, *each) for each in numbers_of(GATEWAY_SHAPE)
]


@pytest.mark.parametrize(
    ("parse", "good", "section", "name", "kind"),
    FILES,
    ids=[f"{parse.__module__}-{section}.{name}" for parse, _, section, name, _ in FILES],
)
def test_a_number_that_cannot_work_is_refused_before_anything_runs(
    parse, good, section, name, kind
):
    """`retry_max_s = inf` passed `check` and ended `run`; these are all its cousins."""
    parse(good, {})
    for value in ABSURD[kind]:
        with pytest.raises(ConfigError) as caught:
            parse(with_key(good, section, name, value), {})
        sentence = str(caught.value)
        assert name in sentence or "is not TOML" in sentence
        assert len(sentence) < 500
        if section in ("node", "gateway", "broker"):
            with pytest.raises(ConfigError):
                parse(good, {f"OPID_{section}_{name}".upper(): value})


def test_there_are_numbers_to_try():
    """A table that is empty proves nothing."""
    keys = {f"{section}.{name}" for _, _, section, name, _ in FILES}
    assert {"gateway.retry_max_s", "node.rate_per_second", "sensors.timeout_s"} <= keys
    assert {"broker.keepalive_s", "node.recent", "gateway.lam"} <= keys


@pytest.mark.parametrize("name", ["spool_bytes_max", "sync_every", "sync_s", "window", "resend_s"])
@pytest.mark.parametrize(
    "value",
    [float("inf"), float("nan"), -1, 0, 10**400, 1e300, "3"],
    ids=lambda value: str(value)[:6],
)
def test_a_source_refuses_a_number_that_cannot_work(tmp_path: Path, name, value):
    """A script's `resend_s=float("inf")` would never send a lost reading again."""
    with pytest.raises(ValueError, match=f"{name} must be"):
        settings_for("farm", "n1", "attic", tmp_path / "spool", **{name: value})
    assert list(tmp_path.iterdir()) == []
