"""Answers that are made once for all viewers: a page, or its JSON, of one view of the book.

What twenty people look at is rendered and compressed once. A browser that has it already is told so
(304) and gets no bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

GZIP_LEVEL = 4  # nearly as small as 9 on tables, at a third of the time
GZIP_FROM = 1_000  # bytes: shorter ones fit into a packet anyway
KEPT = 64
JSON = "application/json; charset=utf-8"
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """A body in both forms, and the name that tells it from any other."""

    body: bytes
    packed: bytes | None
    etag: str
    kind: str

    @classmethod
    def of(cls, text: str, kind: str) -> Answer:
        """Render once."""
        body = text.encode()
        packed = gzip.compress(body, GZIP_LEVEL, mtime=0) if len(body) >= GZIP_FROM else None
        return cls(body, packed, f'"{hashlib.sha256(body).hexdigest()[:24]}"', kind)

    @classmethod
    def json(cls, data: Any) -> Answer:
        """A document."""
        return cls.of(json.dumps(data, ensure_ascii=False, allow_nan=False), JSON)

    def to(self, request: Request) -> Response:
        """What this browser gets of it."""
        headers = {"etag": self.etag, "cache-control": "no-cache, private", "vary": "cookie"}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        body = self.body
        if self.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            body, headers["content-encoding"] = self.packed, "gzip"
        headers["vary"] = "cookie, accept-encoding"
        return Response(body, headers=headers, media_type=self.kind)


class Rendered:
    """The last answers, each under what it was made from.

    >>> rendered = Rendered()
    >>> rendered.get(("fleet", 1), lambda: Answer.json({"n": 1})).body
    b'{"n": 1}'
    >>> rendered.get(("fleet", 1), lambda: Answer.json({"n": 2})).body
    b'{"n": 1}'
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, made_from: Hashable, make: Callable[[], Answer]) -> Answer:
        """What was made from the same, or a new one; the oldest gives way."""
        with self._lock:
            found = self._kept.get(made_from)
            if found is None:
                found = self._kept[made_from] = make()
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            return found
