"""Who may do what on the pages: sessions, one-time links, and how often one may ask. No I/O.

A secret in a file of mode 600 is all there is to guard. From it follow, each by a key of its own:

1. the token that a person types once, and gets a cookie for (`operate`);
2. one-time links, which carry a scope, perhaps one node, and an end; a link becomes a cookie once;
3. the cookies: signed, with scope, node and end. There is no table of sessions; a new secret ends
   them all;
4. the word that Prometheus says in its Authorization header, which opens `/metrics` alone.

`label` may give labels, of one node where it names one; `operate` may do everything.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

from edge_opid.errors import RefusedError

COOKIE = "opid_session"
SESSION_MS = {"label": 90 * 86_400_000, "operate": 12 * 3_600_000}
"""A phone keeps its place for a season; whoever can retire sensors logs in daily."""
LINK_MS = 15 * 60_000
SECRET_CHARS_MIN = 32
SIGNED_CHARS_MAX = 1_024


class Scope(StrEnum):
    """What a session may do."""

    LABEL = "label"
    OPERATE = "operate"


class AccessError(RefusedError, PermissionError):
    """Somebody may not do this here; nothing has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Whom we speak with. `node` is site/node where only that one is open to it."""

    scope: Scope
    node: str = ""
    ends_ms: int = 0
    nonce: str = ""

    def may(self, scope: Scope, node: str = "") -> bool:
        """Whether it may do this, to this node.

        >>> phone = Session(scope=Scope.LABEL, node="farm/n1")
        >>> phone.may(Scope.LABEL, "farm/n1"), phone.may(Scope.LABEL, "farm/n2")
        (True, False)
        >>> phone.may(Scope.LABEL), phone.may(Scope.OPERATE, "farm/n1")
        (False, False)
        """
        enough = self.scope == Scope.OPERATE or scope == Scope.LABEL
        return enough and self.node in ("", node)


ANYBODY = Session(scope=Scope.OPERATE)
"""Whoever reaches a page that is served to this machine alone."""


class Keys:
    """What follows from the secret.

    >>> keys = Keys("x" * 40)
    >>> link = keys.link(Scope.LABEL, "farm/n1", now_ms=0)
    >>> keys.opened_link(link, now_ms=1).node
    'farm/n1'
    >>> keys.opened_link(link, now_ms=LINK_MS + 1)
    Traceback (most recent call last):
    ...
    gateway.web.access.AccessError: this link has expired: ask for another one
    >>> keys.session(link, now_ms=1) is None  # a link is no cookie
    True
    """

    def __init__(self, secret: str) -> None:
        if len(secret) < SECRET_CHARS_MIN:
            sentence = f"the token must have {SECRET_CHARS_MIN} characters or more"
            raise AccessError("web-token", f"{sentence}, got {len(secret)}: let init create one")
        self._secret = secret.encode()

    def is_token(self, typed: str) -> bool:
        """Whether this is the token; how long it takes does not tell how much of it is right."""
        return hmac.compare_digest(typed.encode(), self._secret)

    @property
    def metrics_word(self) -> str:
        """What Prometheus says to read `/metrics`, and nothing else."""
        return _text(self._key("metrics"))

    def is_metrics_word(self, said: str) -> bool:
        """Whether this is the word for `/metrics`."""
        return hmac.compare_digest(said.encode(), self.metrics_word.encode())

    def cookie(self, scope: Scope, node: str, now_ms: int) -> str:
        """A session as the browser keeps it."""
        return self._signed("cookie", scope, node, now_ms + SESSION_MS[scope])

    def session(self, cookie: str, now_ms: int) -> Session | None:
        """The session of a cookie; None where it is not ours, or over."""
        found = self._verified("cookie", cookie)
        return found if found is not None and now_ms < found.ends_ms else None

    def link(self, scope: Scope, node: str, now_ms: int) -> str:
        """A code that is good for one cookie."""
        return self._signed("link", scope, node, now_ms + LINK_MS)

    def opened_link(self, code: str, now_ms: int) -> Session:
        """What a code is good for; whoever asks makes sure that it is used once, by its nonce."""
        found = self._verified("link", code)
        if found is None:
            raise AccessError("web-link", "this link is not valid here: ask for another one")
        if now_ms >= found.ends_ms:
            raise AccessError("web-link", "this link has expired: ask for another one")
        return found

    def _signed(self, purpose: str, scope: Scope, node: str, ends_ms: int) -> str:
        content = json.dumps([str(scope), node, ends_ms, secrets.token_urlsafe(12)]).encode()
        mark = hmac.digest(self._key(purpose), content, hashlib.sha256)
        return f"{_text(content)}.{_text(mark)}"

    def _verified(self, purpose: str, text: str) -> Session | None:
        if len(text) > SIGNED_CHARS_MAX or not text.isascii():
            return None
        content, _, mark = text.partition(".")
        try:
            said, proof = _bytes(content), _bytes(mark)
        except ValueError:
            return None
        if not hmac.compare_digest(proof, hmac.digest(self._key(purpose), said, hashlib.sha256)):
            return None
        scope, node, ends_ms, nonce = json.loads(said)  # we wrote it
        return Session(scope=Scope(scope), node=node, ends_ms=ends_ms, nonce=nonce)

    def _key(self, purpose: str) -> bytes:
        return hmac.digest(self._secret, f"opid-gateway web {purpose}".encode(), hashlib.sha256)


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# -- where a request comes from --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and by which name they call us; behind a trusted proxy, as it tells us."""

    address: str
    scheme: str
    host: str  # the Host header as it came, with its port

    @property
    def origin(self) -> str:
        """What a browser names as the Origin of a form on one of our own pages."""
        return f"{self.scheme}://{self.host}"

    @property
    def name(self) -> str:
        """The host without its port, small.

        >>> Caller(address="", scheme="http", host="[::1]:8470").name
        '::1'
        >>> Caller(address="", scheme="http", host="Pi.local:8470").name
        'pi.local'
        """
        host = self.host.lower()
        if host.startswith("["):
            return host[1:].partition("]")[0]
        return host.rpartition(":")[0] if ":" in host else host


def caller_of(
    peer: str, scheme: str, headers: dict[str, str], trusted_proxies: tuple[str, ...]
) -> Caller:
    """Who asks. The headers of a proxy count only where the connection comes from one we trust.

    >>> forwarded = {"host": "pi.local", "x-forwarded-for": "6.6.6.6, 10.0.0.9"}
    >>> caller_of("127.0.0.1", "http", forwarded, ("127.0.0.1",)).address
    '10.0.0.9'
    >>> caller_of("10.0.0.7", "http", forwarded, ("127.0.0.1",)).address
    '10.0.0.7'
    """
    if peer in trusted_proxies:
        chain = [each.strip() for each in headers.get("x-forwarded-for", "").split(",")]
        strangers = [each for each in chain if each and each not in trusted_proxies]
        peer = strangers[-1] if strangers else peer
        said = headers.get("x-forwarded-proto", scheme)
        scheme = said if said in ("http", "https") else scheme
    return Caller(address=peer[:64], scheme=scheme, host=headers.get("host", ""))


class RateLimit:
    """So many at once from one address, and so many a second after that.

    >>> limit = RateLimit(per_s=1.0, burst=2)
    >>> [limit.take("a", 0) for _ in range(3)], limit.take("b", 0), limit.take("a", 1_000)
    ([True, True, False], True, True)
    """

    ADDRESSES_MAX = 1_024

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, burst
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()  # address → left, when

    def take(self, address: str, now_ms: int) -> bool:
        """Whether one more is allowed now."""
        address = _household(address)
        left, at_ms = self._left.pop(address, (float(self._burst), now_ms))
        left = min(self._burst, left + self._per_s * max(0, now_ms - at_ms) / 1000)
        allowed = left >= 1
        self._left[address] = (left - 1 if allowed else left, now_ms)
        if len(self._left) > self.ADDRESSES_MAX:
            self._left.popitem(last=False)
        return allowed


def _household(address: str) -> str:
    """Who has an IPv6 address has all 2⁶⁴ of its network: they count as one.

    >>> _household("2001:db8::7"), _household("::ffff:10.0.0.9"), _household("10.0.0.9")
    ('2001:db8::', '10.0.0.9', '10.0.0.9')
    """
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or ipaddress.IPv6Address(int(found) >> 64 << 64))
