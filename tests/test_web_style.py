"""Colours that everybody can tell apart, in both schemes; and rest for whoever asks for it."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

STYLE = (Path(__file__).parent.parent / "gateway" / "web" / "static" / "style.css").read_text()
AA = 4.5  # WCAG 2.1, contrast of text
INKS = ("ink", "muted", "accent", "good", "warn", "bad")


def colours(block):
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))


LIGHT, DARK = map(colours, STYLE.split("prefers-color-scheme: dark"))


def luminance(colour):
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_is_as_far_apart_as_can_be():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_can_be_read_on_every_ground(scheme):
    for ink, ground in product(INKS, ("ground", "card")):
        assert contrast(scheme[ink], scheme[ground]) >= AA, f"{ink} on {ground}"
    assert contrast(scheme["on-accent"], scheme["accent"]) >= AA
    assert contrast(scheme["ground"], scheme["bad"]) >= AA


def test_nothing_moves_for_whoever_asks_for_rest():
    assert "prefers-reduced-motion: reduce" in STYLE
    assert "transition: none" in STYLE
