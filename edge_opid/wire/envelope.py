"""The signature around `desired`: verify bytes first, decode second.

    magic (4 bytes) | Ed25519 signature (64) | document (msgpack)

The signature covers a prefix that names its purpose, then the document, so that nothing else the
same key may ever sign can be passed off as a `desired`. Its fixed layout needs no decoder: until
the signature holds, not one byte of the document is interpreted. Keys come in as arguments.

>>> from nacl.signing import SigningKey
>>> key = SigningKey(bytes(32))
>>> open_sealed(seal(b"document", key), [key.verify_key])
b'document'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from edge_opid.blake2 import blake2b
from edge_opid.errors import WireError, shown
from edge_opid.wire.codec import decode, encode
from edge_opid.wire.documents import Desired
from edge_opid.wire.limits import LIMITS

if TYPE_CHECKING:  # loaded where there are keys
    from nacl.signing import SigningKey, VerifyKey

MAGIC = b"opd1"
PURPOSE = b"edge-opid/1/desired\x00"  # the zero ends it: no purpose is the beginning of another
SIGNATURE_BYTES = 64
HEADER_BYTES = len(MAGIC) + SIGNATURE_BYTES


class Sealer:
    """Signs with one key. What libsodium wants of it is derived once: a wave is signed by it."""

    def __init__(self, key: SigningKey) -> None:
        from nacl.bindings import crypto_sign  # noqa: PLC0415 - whoever has a key has loaded it

        self._sign, self._secret = crypto_sign, key.encode() + key.verify_key.encode()

    def seal(self, document: bytes) -> bytes:
        """The document with its signature in front."""
        signed: bytes = self._sign(PURPOSE + document, self._secret)
        return MAGIC + signed[:SIGNATURE_BYTES] + document


def seal(document: bytes, key: SigningKey) -> bytes:
    """The document with its signature in front."""
    return Sealer(key).seal(document)


def open_sealed(payload: bytes, trusted: Iterable[VerifyKey]) -> bytes:
    """The document, if one of the `trusted` keys signed it: two while keys are exchanged."""
    _check_frame(payload)
    signature, document = payload[len(MAGIC) : HEADER_BYTES], payload[HEADER_BYTES:]
    keys = tuple(trusted)
    if not any(_signed_by(key, signature, document) for key in keys):
        raise WireError(
            "signature",
            f"desired must be signed by one of the {len(keys)} trusted keys, got another "
            f"signature on {len(document)} bytes: check the node's gateway key",
        )
    return document


def seal_desired(desired: Desired, key: SigningKey) -> bytes:
    """What a gateway publishes."""
    return seal(encode(desired), key)


def open_desired(payload: bytes, trusted: Iterable[VerifyKey]) -> Desired:
    """What a node believes: size, then signature, then content."""
    return decode(open_sealed(payload, trusted), Desired)


def digest(payload: bytes) -> str:
    """A short name for exactly these bytes: two payloads of one version must have the same.

    >>> digest(b"document")
    '1d62f0d1b4bae4e386bb5354f902e65f'
    """
    return blake2b(payload, digest_size=16).hexdigest()


def _check_frame(payload: bytes) -> None:
    largest = LIMITS.payload_bytes_max + HEADER_BYTES
    if len(payload) > largest:
        raise WireError("size", f"desired must have at most {largest} bytes, got {len(payload)}")
    if len(payload) < HEADER_BYTES:
        raise WireError(
            "truncated", f"desired must have at least {HEADER_BYTES} bytes, got {len(payload)}"
        )
    magic = payload[: len(MAGIC)]
    if magic != MAGIC:
        raise WireError(
            "signature", f"desired must be sealed and begin with {MAGIC!r}, got {shown(magic)}"
        )


def _signed_by(key: VerifyKey, signature: bytes, document: bytes) -> bool:
    from nacl.exceptions import BadSignatureError  # noqa: PLC0415 - whoever has a key has loaded it

    try:
        key.verify(PURPOSE + document, signature)
    except BadSignatureError:
        return False
    return True
