"""Topics and filters as the MQTT specification (section 4.7) has them."""

from __future__ import annotations

from edge_opid.link.contract import TopicError

TOPIC_BYTES_MAX = 65_535  # a length in MQTT has two bytes


def check_topic(topic: str) -> str:
    """Return a topic one may publish to, or raise `TopicError`."""
    if "+" in topic or "#" in topic:
        raise TopicError(f"topic {topic!r} holds a wildcard (+ or #): publish to one exact topic")
    return _check_text(topic, "topic")


def check_filter(filter_: str) -> str:
    """Return a filter one may subscribe to, or raise `TopicError`.

    >>> check_filter("opid/1/+/reading/#")
    'opid/1/+/reading/#'
    >>> check_filter("opid/#/reading")
    Traceback (most recent call last):
    edge_opid.link.contract.TopicError: filter 'opid/#/reading' holds # before its last level
    """
    levels = _check_text(filter_, "filter").split("/")
    if "#" in levels[:-1]:
        raise TopicError(f"filter {filter_!r} holds # before its last level")
    for level in levels:
        if len(level) > 1 and any(mark in level for mark in "+#"):
            raise TopicError(f"filter {filter_!r}: a wildcard must be a whole level, not {level!r}")
    return filter_


def matches(filter_: str, topic: str) -> bool:
    """Whether a subscriber to this filter sees this topic.

    >>> matches("a/+/c", "a/b/c"), matches("a/#", "a"), matches("+", "a/b"), matches("#", "$SYS/x")
    (True, True, False, False)
    """
    wanted, given = filter_.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False  # MQTT-4.7.2-1: the broker's own topics are asked for by name
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(given) or level not in ("+", given[place]):
            return False
    return len(wanted) == len(given)


def _check_text(text: str, what: str) -> str:
    if not text or "\0" in text:
        raise TopicError(f"{what} {text!r} must not be empty nor hold a NUL")
    try:
        length = len(text.encode())
    except UnicodeEncodeError as error:
        raise TopicError(f"{what} {text!r} is not valid UTF-8") from error
    if length > TOPIC_BYTES_MAX:
        raise TopicError(f"{what} of {length} bytes must have at most {TOPIC_BYTES_MAX}")
    return text
