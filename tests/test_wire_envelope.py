"""Named attacks on the seal around `desired`: each is refused, and the good one still opens."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey
from test_wire_golden import EXAMPLES, KEY, golden

from edge_opid.wire import (
    LIMITS,
    Desired,
    WireError,
    digest,
    encode,
    open_desired,
    open_sealed,
    seal,
)
from edge_opid.wire.envelope import HEADER_BYTES, MAGIC

GOOD = golden("desired_sealed")
OTHER_KEY = SigningKey(bytes(reversed(range(32))))


def refusal(payload: bytes, *trusted: SigningKey) -> str:
    """Why `payload` does not open; the good one still does."""
    with pytest.raises(WireError) as caught:
        open_desired(payload, [key.verify_key for key in trusted or (KEY,)])
    assert open_desired(GOOD, [KEY.verify_key]) == EXAMPLES["desired"]
    return caught.value.reason


def test_an_unsigned_document_is_refused() -> None:
    """The bare document is not a sealed one."""
    assert refusal(golden("desired")) == "signature"


def test_a_document_signed_by_another_key_is_refused() -> None:
    """Anybody can sign; only the gateway is believed."""
    assert refusal(seal(golden("desired"), OTHER_KEY)) == "signature"
    assert refusal(GOOD, OTHER_KEY) == "signature"


def test_a_node_that_trusts_nobody_accepts_nothing() -> None:
    """No key configured means that nothing is accepted, not that everything is."""
    with pytest.raises(WireError, match="one of the 0 trusted keys"):
        open_sealed(GOOD, [])


def test_while_keys_are_exchanged_both_are_believed() -> None:
    """While a node knows both keys, the order does not matter."""
    both = [OTHER_KEY.verify_key, KEY.verify_key]
    assert open_desired(GOOD, both) == open_desired(GOOD, both[::-1]) == EXAMPLES["desired"]


def test_one_bit_flipped_anywhere_is_refused() -> None:
    """The broker may deny or delay; it cannot alter."""
    for position in range(len(GOOD)):
        altered = bytearray(GOOD)
        altered[position] ^= 1 << position % 8
        assert refusal(bytes(altered)) == "signature"


def test_a_truncated_or_extended_document_is_refused() -> None:
    """Every prefix is refused, and so is a tail."""
    for length in range(HEADER_BYTES):
        assert refusal(GOOD[:length]) == "truncated"
    for length in range(HEADER_BYTES, len(GOOD), 7):
        assert refusal(GOOD[:length]) == "signature"
    assert refusal(GOOD + b"\x00") == "signature"


def test_an_oversized_document_is_refused_before_it_is_verified() -> None:
    """Size comes before the signature: verifying costs time in proportion."""
    assert refusal(GOOD + bytes(LIMITS.payload_bytes_max)) == "size"


def test_a_signature_for_another_purpose_is_refused() -> None:
    """The same key's signature on the bare bytes, without our prefix, is worth nothing."""
    document = golden("desired")
    assert refusal(MAGIC + KEY.sign(document).signature + document) == "signature"


def test_a_signed_message_of_another_kind_is_refused() -> None:
    """The right key on the wrong message: verified, then refused for what it is."""
    assert refusal(seal(golden("ack"), KEY)) == "kind"
    assert refusal(seal(b"", KEY)) == "truncated"
    assert refusal(seal(b"\xc1", KEY)) == "type"


def test_two_documents_of_one_version_have_different_digests() -> None:
    """Their digests differ, so a node can raise the alarm; the same bytes have the same one."""
    desired = EXAMPLES["desired"]
    assert isinstance(desired, Desired)
    assert digest(encode(desired)) == digest(golden("desired"))
    assert digest(encode(desired)) != digest(golden("desired") + b"\x00")
