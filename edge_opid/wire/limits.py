"""How much of everything the wire accepts: all limits in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """The promises about size that both ends rely on. They are part of the schema version.

    The largest follows from one promise: a layout of 320 columns with 16 classes, whose summary is
    320·321/2 + 320·16 numbers in float32.

    >>> (320 * 321 // 2 + 320 * 16) * 4 < LIMITS.summary_bytes_max
    True
    """

    payload_bytes_max: int = 81_920  # the largest order: 320·16 weights are 20,480; a kernel's more
    summary_bytes_max: int = 245_760  # 225,920 of numbers, 10,880 of names; room. Nodes get none
    small_payload_bytes_max: int = 8_192  # an example of 160 sensors is 7.1 kB; room
    sensors_max: int = 160  # in a layout, and so in one reading
    columns_max: int = 320  # d, as far as a node's memory goes; with 8 hats that is 39 sensors
    classes_max: int = 16  # they multiply every matrix that travels
    knots_max: int = 32  # the figures of the lift rest on 8
    matrices_max: int = 16  # W, V and a few more make a model
    counts_max: int = 160  # what a node counts, by name: all of `edge_opid.reasons` and room
    reasons_max: int = 16  # why a node is degraded: more would not be read
    confirmed_max: int = 128  # messages in one confirmation: 4.5 kB
    map_keys_max: int = 160  # as many as the longest map, the values of a reading
    id_chars_max: int = 32  # the longest topic is then 113 characters
    text_bytes_max: int = 64  # class names, units, reasons, in UTF-8
    integer_max: int = 2**53 - 1  # exact as a JSON number and in float64
    number_max: float = 3.4028234663852886e38  # the learner computes in float32: above it is inf
    positive_min: float = 1.1754943508222875e-38  # a scale below it would be 0 in float32
    gather_max: int = 100_000  # labelled instances in one order: 150 MB with 74 sensors
    boot_clock_max: int = 2**52  # what clocks give a source until 2106: `edge_opid.source.number`
    boot_step_max: int = 2**26  # above that and above the last: a forged one must not use them up
    version_step_max: int = 2**20  # further ahead is a mistake or a forgery, and would lock us out


LIMITS = WireLimits()
