"""Every topic and every message, with an example: the golden bytes of the wire's tests, as JSON."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types

from benchmarks.reference.tables import code, head, table
from edge_opid.wire import MESSAGES_ON, READABLE, Channel, Desired, Message, topics

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
ENGLISH = {"frisch": "fresh", "schwül": "humid"}  # the golden bytes stay as they are
TYPES = {
    "AllReadings": "sums of all readings, labelled or not",
    "Bytes": "bytes",
    "ClassCount": "whole number",
    "ClassNames": "list of texts",
    "Count": "whole number from 0",
    "Counts": "names and whole numbers",
    "Digests": "list of texts",
    "Id": "id",
    "InstanceId": "source, boot and seq",
    "Knots": "list of numbers",
    "Line": "text",
    "Millis": "milliseconds",
    "Names": "list of ids",
    "NotNegative": "number from 0",
    "Ordinal": "whole number from 1",
    "Positive": "number above 0",
    "Quota": "whole number",
    "Rates": "names and numbers from 0 to 1",
    "Real": "number",
    "Reasons": "list of texts",
    "Scores": "classes and numbers",
    "Sensors": "list of sensors",
    "Sure": "number from 0 to 1",
    "Values": "sensor ids and numbers",
    "Weights": "weights",
    "Width": "whole number",
    "Yes": "true or false",
}
"""How people call the types of `edge_opid.wire`; one that is missing here ends the program."""
ABOUT = """\
All topics begin with `opid/1/SITE/NODE/`; QoS is 1. Messages for people and other programs are JSON
(or msgpack, with `node.format = "msgpack"`). Messages between machines are msgpack, shown here as
JSON with arrays as `"<bytes>"`. Labels may be either, or one of the [shorter forms](../labels.md).
`v` is the version of the schema. Unknown keys are ignored, except in labels. Times are milliseconds
since 1970."""


def page() -> str:
    """The whole page."""
    parts = [head("Topics and messages", ABOUT), "\n## Topics\n\n", _topics(), "\n## Messages\n"]
    examples = _examples()
    said: dict[Channel, tuple[type[Message], ...]] = {**MESSAGES_ON, Channel.DESIRED: (Desired,)}
    for channel, kinds in said.items():
        for kind in kinds:
            parts += _message(channel, kind, examples[kind.kind])
    return "".join(parts)


def _topics() -> str:
    """The table in the docstring of the module that builds them."""
    lines = inspect.cleandoc(topics.__doc__ or "").splitlines()
    return "".join(f"{line}\n" for line in lines if line.startswith("|"))


def _message(channel: Channel, kind: Any, example: str) -> Iterator[str]:
    form = "JSON" if kind in READABLE else "JSON or msgpack" if channel is Channel.LABEL else ""
    signed = ", inside an envelope signed with Ed25519" if kind is Desired else ""
    yield f"\n### {kind.kind}\n\nOn `{channel.value}`, as {form or 'msgpack'}{signed}. "
    yield f"{_prose(kind)}\n\n"
    rows = [
        (code(each.name), _type(each), "" if _has_default(each) else "needed")
        for each in fields(kind)
    ]
    yield table(("key", "type", ""), rows)
    yield f"\n```json\n{example}\n```\n"


def _type(each: Any) -> str:
    return TYPES[str(each.type).removesuffix(" | None")]


def _has_default(each: Any) -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


def _prose(kind: type[Message]) -> str:
    """The docstring up to its example."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n>>>")[0].strip()


def _examples() -> dict[str, str]:
    """The first golden message of each kind."""
    found: dict[str, str] = {}
    for path in sorted(GOLDEN.glob("*.hex")):
        if path.stem == "desired_sealed":
            continue
        message = msgpack.unpackb(bytes.fromhex(path.read_text().replace("\n", "")))
        shown = json.dumps(_shown(message), indent=2, ensure_ascii=False)
        found.setdefault(message["kind"], shown)
    return found


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return "<bytes>"
    if isinstance(value, dict):
        return {ENGLISH.get(key, key): _shown(each) for key, each in value.items()}
    if isinstance(value, str):
        return ENGLISH.get(value, value)
    return [_shown(each) for each in value] if isinstance(value, list) else value
