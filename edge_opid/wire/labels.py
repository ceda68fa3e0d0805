"""Labels in every form people have: what may stand on the topics `label` and `label/now`.

A machine sends a `Label` or an `Undo` in msgpack. A person, a phone or Home Assistant writes JSON,
which begins with `{` and so cannot be mistaken for it:

| JSON | meaning |
|---|---|
| `{"label": "damp"}` | it is so now |
| `{"label": "damp", "instance": {"source": "attic", "boot": 3, "seq": 12}}` | of this prediction |
| `{"label": "damp", "time": "2026-11-17T14:00:00+01:00"}` | it was so then |
| `{"label": "damp", "from": 1794920400, "until": 1794927600}` | every instance of this stretch |
| `{"undo": true}` | the label learned last was a mistake |
| `{"undo": true, "instance": …}`, with `time`, or with `from` and `until` | those labels were |

An instance may also be written `"attic/3/12"`. A time is ISO 8601 with its offset from UTC, or a
number: seconds since 1970, or milliseconds (from 100,000,000,000 on). Without `until` a stretch
lasts until now. On `label/now` a bare word will do: `damp`.

A key that is none of these is refused rather than ignored: a misspelled `instance` would turn a
label into one about now. What is null counts as not given, so that templates may leave it empty.
"""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any, cast

from edge_opid.errors import WireError, shown
from edge_opid.wire.codec import decode, parse_json
from edge_opid.wire.foreign import described
from edge_opid.wire.messages import InstanceId, Label, Undo

KEYS = ("label", "undo", "instance", "time", "from", "until")
MILLISECONDS_FROM = 100_000_000_000  # as seconds that is the year 5138
WORD_BYTES_MAX = 256  # a class has 64; what is longer is refused before it is decoded


def read_label(payload: bytes) -> Label | Undo:
    """The label in a payload of the topic `label`, in whichever form; or a `WireError`.

    >>> read_label(b'{"label": "damp", "instance": "attic/3/12"}').instance
    InstanceId(source='attic', boot=3, seq=12)
    >>> read_label(b'{"label": "damp", "instnce": "attic/3/12"}')
    Traceback (most recent call last):
    ...
    edge_opid.errors.WireError: 'instnce' is not a key of a label; the keys are label, undo, \
instance, time, from, until
    """
    if payload[:1] != b"{":
        message = decode(payload, Label, Undo)
        return cast("Label | Undo", message)
    found = parse_json(payload, "label", Label.bytes_max)
    given = {key: value for key, value in found.items() if value is not None}
    for key in given:
        if key not in KEYS:
            raise WireError(
                "content", f"{shown(key)} is not a key of a label; the keys are {', '.join(KEYS)}"
            )
    which: dict[str, Any] = {}
    if "instance" in given:
        which["instance"] = _instance(given["instance"])
    for key, name in (("time", "time_ms"), ("from", "from_ms"), ("until", "until_ms")):
        if key in given:
            which[name] = millis_of(given[key], key)
    if ("label" in given) == ("undo" in given):
        both = "both" if "label" in given else "neither"
        raise WireError("missing", f"a label must have either label or undo, got {both}")
    if "label" in given:
        if not isinstance(given["label"], str):
            raise WireError("type", f"label must be text, got {described(given['label'])}")
        return Label(given["label"], **which)
    if given["undo"] is not True:
        raise WireError("type", f"undo must be true, got {described(given['undo'])}")
    return Undo(**which)


def read_word(payload: bytes) -> Label | Undo:
    r"""The label in a payload of `label/now`: a bare word, with or without quotes; or JSON.

    >>> read_word(b" damp\n").label
    'damp'
    """
    if payload[:1] == b"{":
        return read_label(payload)
    if len(payload) > WORD_BYTES_MAX:
        raise WireError("size", f"a label must have at most {WORD_BYTES_MAX} bytes as a word")
    try:
        text = payload.decode().strip()
    except UnicodeDecodeError:
        raise WireError("text", "a label on label/now must be a word in UTF-8") from None
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    return Label(text)


def label_json(said: Label | Undo) -> bytes:
    """A label as a person would have written it.

    >>> label_json(Label("damp", InstanceId("attic", 3, 12)))
    b'{"label": "damp", "instance": {"source": "attic", "boot": 3, "seq": 12}}'
    """
    found: dict[str, Any] = {"label": said.label} if isinstance(said, Label) else {"undo": True}
    if said.instance is not None:
        found["instance"] = said.instance.plain()
    times = {"time": said.time_ms, "from": said.from_ms, "until": said.until_ms}
    found |= {key: _spelled(at_ms) for key, at_ms in times.items() if at_ms is not None}
    return json.dumps(found, ensure_ascii=False).encode()


def _spelled(at_ms: int) -> int | float:
    """Milliseconds, unless they would be taken for seconds."""
    return at_ms if at_ms >= MILLISECONDS_FROM else at_ms / 1000


def parse_instance(text: str) -> InstanceId:
    """The instance that is written as source/boot/seq.

    >>> parse_instance("attic/3/12")
    InstanceId(source='attic', boot=3, seq=12)
    """
    source, *numbers = text.split("/")
    if len(numbers) != 2 or not all(each.isascii() and each.isdigit() for each in numbers):
        raise WireError("content", f"an instance must be source/boot/seq, got {shown(text)}")
    if any(len(each) > 16 for each in numbers):
        raise WireError("range", f"an instance must have numbers below 2⁵³, got {shown(text)}")
    return InstanceId(source, int(numbers[0]), int(numbers[1]))


def _instance(said: Any) -> InstanceId:
    if isinstance(said, str):
        return parse_instance(said)
    if not isinstance(said, dict) or set(said) != {"source", "boot", "seq"}:
        what = sorted(said) if isinstance(said, dict) else described(said)
        raise WireError("type", f"instance must have source, boot and seq, got {what}")
    for name, value in said.items():
        if not isinstance(value, str | int):
            raise WireError("type", f"instance.{name} cannot be {described(value)}")
    return InstanceId(**said)


def millis_of(said: Any, key: str) -> int:
    """A time in ms: of text, or of a number in seconds or milliseconds."""
    if isinstance(said, str):
        return _from_text(said, key)
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said < math.inf:
        raise WireError("type", f"{key} must be a time, got {described(said)}")
    return round(said if said >= MILLISECONDS_FROM else 1000 * said)


def _from_text(text: str, key: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise WireError(
            "content", f"{key} must be like 2026-11-17T14:00:00+01:00, got {shown(text)}"
        ) from None
    if found.tzinfo is None:
        raise WireError(
            "content", f"{key} must say how far it is from UTC (Z, +01:00), got {shown(text)}"
        )
    at_ms = round(1000 * found.timestamp())
    if at_ms < 0:
        raise WireError("range", f"{key} must be after 1970, got {shown(text)}")
    return at_ms
