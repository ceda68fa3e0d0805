"""One line an event, `key=value`, to stderr: for people, `grep` and the journal of systemd.

What is logged is what happened to the service: never the content of a secret file, never more of a
payload than the first bytes of one that was refused, and nothing that comes once per reading. What
happens often is logged at its 1st, 2nd, 4th, 8th … time, with the number so far: see
`worth_a_line` and `edge_opid.tally`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from typing import TextIO

_PLAIN = re.compile(r"[\w.,:;/@%+()\[\]-]+")
_SECRET = re.compile("password|secret|token", re.IGNORECASE)
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_logger = logging.getLogger("edge_opid")


class LineFormatter(logging.Formatter):
    r"""An event and its fields as one line, whatever is in them.

    >>> record = logging.LogRecord("edge_opid", logging.INFO, "", 0, "commit refused", (), None)
    >>> record.fields = {"reason": "disk", "why": "No space\nleft", "password": "1234"}
    >>> print(LineFormatter(timed=False).format(record))
    level=info event="commit refused" reason=disk why="No space\nleft" password=***
    """

    def __init__(self, *, timed: bool) -> None:
        super().__init__(datefmt="%Y-%m-%dT%H:%M:%S%z")
        self._timed = timed

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        parts = {"time": self.formatTime(record, self.datefmt)} if self._timed else {}
        parts |= {"level": record.levelname.lower(), "event": record.getMessage()}
        parts |= getattr(record, "fields", {})
        if record.exc_info:
            parts["trace"] = self.formatException(record.exc_info)
        return " ".join(f"{key}={_shown(key, value)}" for key, value in parts.items())


def set_up(
    level: str, environment: Mapping[str, str] | None = None, to: TextIO | None = None
) -> None:
    """Log from this level on. The journal knows the time itself, so its lines have none."""
    handler = logging.StreamHandler(to or sys.stderr)
    handler.setFormatter(LineFormatter(timed="JOURNAL_STREAM" not in (environment or {})))
    _logger.handlers = [handler]
    _logger.propagate = False
    _logger.setLevel(level.upper())


def show_unless_configured() -> None:
    """For a script that has set up no logging: Python alone would print events without fields."""
    if not _logger.hasHandlers():
        handler = _LastResort(sys.stderr)
        handler.setFormatter(LineFormatter(timed=True))
        handler.setLevel(logging.WARNING)
        _logger.addHandler(handler)


class _LastResort(logging.StreamHandler[TextIO]):
    """Steps aside when the script sets up a logging of its own after all."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not logging.getLogger().handlers and bool(super().filter(record))


def debug(event: str, **fields: object) -> None:
    """What only somebody who looks for a fault, or proves that there is none, wants to read."""
    _logger.debug(event, extra={"fields": fields})


def info(event: str, **fields: object) -> None:
    """Something happened as it should."""
    _logger.info(event, extra={"fields": fields})


def warning(event: str, **fields: object) -> None:
    """Something is wrong, and the node goes on."""
    _logger.warning(event, extra={"fields": fields})


def error(event: str, *, trace: bool | BaseException = False, **fields: object) -> None:
    """Something is wrong that the node cannot put right alone.

    `trace`: where it came from; the error itself where it is not being handled right now.
    """
    _logger.error(event, extra={"fields": fields}, exc_info=trace)


def tell(level: str, event: str, **fields: object) -> None:
    """Something that a table of reasons knows, at its level: see `edge_opid.reasons`."""
    _logger.log(_LEVELS[level], event, extra={"fields": fields})


def worth_a_line(count: int) -> bool:
    """Whether the `count`-th time is to be told: 1, 2, 4, 8 …

    >>> [count for count in range(1, 100) if worth_a_line(count)]
    [1, 2, 4, 8, 16, 32, 64]
    """
    return count & (count - 1) == 0


def _shown(key: str, value: object) -> str:
    if _SECRET.search(key):
        return "***"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
