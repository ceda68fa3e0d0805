"""A run as a short film: an animated SVG that a browser, or a README, plays by itself.

The curves are drawn from left to right while the sensors' deaths and births are named as they come.
It is plain text without scripts, follows the reader's choice of light or dark, and stands still at
its end where somebody has asked for less motion.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from firmware_sim.scenario.rivals import RESTARTED, ZERO_FILLING
from firmware_sim.scenario.score import MODELS, SERVED, Score

WIDTH, HEIGHT = 860, 400
LEFT, RIGHT, TOP, BOTTOM = 48, 700, 96, 352  # the field of the curves, in pixels
LOW, HIGH = 0.5, 1.0  # shares of right answers at its bottom and its top
POINT = 10  # readings between two points …
BEHIND = 50  # … each of which is the mean over so many before it
SECONDS, PAUSE_S = 12.0, 6.0
STYLES = {SERVED: "ours", ZERO_FILLING: "zeros", RESTARTED: "anew"}
STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #333 }
.title { font-weight: 600; font-size: 16px } .small { font-size: 12px; fill: #777 }
.grid { stroke: #ddd } .mark { stroke: #999; stroke-dasharray: 3 4 }
polyline { fill: none; stroke-width: 2.2 }
.ours { stroke: #0b7a57; stroke-width: 3.6 } .zeros { stroke: #c8553d } .anew { stroke: #8d99ae }
text.ours { fill: #0b7a57; font-weight: 600 } text.zeros { fill: #c8553d }
text.anew { fill: #6c7a92 } text { stroke: none !important }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .grid { stroke: #444 } .small { fill: #999 } .mark { stroke: #888 }
  .ours { stroke: #3ddc97 } text.ours { fill: #3ddc97 } .zeros { stroke: #ff8a70 }
  text.zeros { fill: #ff8a70 } text.anew { fill: #b6c2d6 }
}"""


def recording(score: Score, title: str, live: bool = False) -> str:
    """The SVG of a run, from its first reading to its last.

    `live`: as far as it has come, without title and names, which the page around it has.

    >>> from firmware_sim.scenario.scenario import load_scenario
    >>> from firmware_sim.scenario.script import Script
    >>> film = recording(Score(Script(load_scenario("one_retire"), seed=7)), "one & only")
    >>> film.startswith("<svg"), "one &amp; only" in film, "pm10 goes" in film
    (True, True, True)
    """
    readings = score.script.scenario.readings
    seen = f"0 40 {RIGHT + 12} {HEIGHT - 40}" if live else f"0 0 {WIDTH} {HEIGHT}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{seen}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}\n{'' if live else _motion(_first_change(score) / readings)}</style>",
        "" if live else f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
        *_field(),
        *_changes(score, readings, score.played if live else readings),
        '<g clip-path="url(#so-far)">',
        *(_curve(score, name, readings) for name in reversed(STYLES)),
        "</g>",
        f'<clipPath id="so-far"><rect class="so-far" x="{LEFT}" y="0" width="{RIGHT - LEFT}" '
        f'height="{HEIGHT}"/></clipPath>',
        *(() if live else _names(score)),
        "</svg>\n",
    ]
    return "\n".join(filter(None, parts))


def _first_change(score: Score) -> int:
    return min((change.at for change in score.after_changes()), default=0)


def _motion(first: float) -> str:
    """Everything is drawn in `SECONDS`, stands still for a while, and begins anew.

    It begins shortly before the first change: a glance at a page shows no empty field.
    """
    whole, drawn = SECONDS + PAUSE_S, 100 * SECONDS / (SECONDS + PAUSE_S)
    frames = f"from {{ transform: scaleX(0) }} {drawn:.0f}%, to {{ transform: scaleX(1) }}"
    begun = f"{-0.9 * first * SECONDS:.1f}s"
    played = f"transform-origin: {LEFT}px 0; animation: grow {whole:g}s linear {begun} infinite"
    return (
        f"@keyframes grow {{ {frames} }}\n"
        f"@media (prefers-reduced-motion: no-preference) {{ .so-far {{ {played} }} }}"
    )


def _field() -> Iterator[str]:
    for percent in range(int(100 * LOW), int(100 * HIGH) + 1, 10):
        y = _height(percent / 100)
        yield f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        at = f'x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end"'
        yield f'<text class="small" {at}>{percent}</text>'
    words = f"% right over the last {BEHIND} readings"
    yield f'<text class="small" x="{LEFT}" y="{BOTTOM + 34}">{words}</text>'


def _changes(score: Score, readings: int, until: int) -> Iterator[str]:
    seen = [change for change in score.after_changes() if change.at < until]
    for place, change in enumerate(seen):
        x = _place(change.at, readings)
        y = TOP - 14 - 22 * (place % 2)  # two rows: long names do not meet
        yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 5}" y2="{BOTTOM}"/>'
        yield f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{escape(change.words)}</text>'


def _curve(score: Score, name: str, readings: int) -> str:
    points = " ".join(
        f"{_place(at, readings):.1f},{_height(share):.1f}"
        for at, share in _shares(score, name, readings)
    )
    return f'<polyline class="{STYLES[name]}" points="{points}"/>'


def _names(score: Score) -> Iterator[str]:
    """Beside the ends of their curves, far enough from each other to be read."""
    readings = score.script.scenario.readings
    ends = [(_shares(score, name, readings)[-1:], name) for name in MODELS if name in STYLES]
    wanted = sorted((_height(found[0][1]) if found else BOTTOM, name) for found, name in ends)
    below = 0.0
    for height, name in wanted:
        below = max(height, below + 20)
        yield f'<text class="{STYLES[name]}" x="{RIGHT + 10}" y="{below + 5:.1f}">{name}</text>'


def _shares(score: Score, name: str, readings: int) -> Sequence[tuple[int, float]]:
    """How often it was right over the readings before each point, as far as all were played.

    A mean over the one reading that has come of fifty would jump from 0 to 100 per cent.
    """
    ends = range(BEHIND, min(readings, score.played + 1), POINT)
    found = [(at, score.between(name, at - BEHIND, at)) for at in ends]
    return [(at, share) for at, share in found if not math.isnan(share)]


def _place(at: int, readings: int) -> float:
    return LEFT + (RIGHT - LEFT) * at / readings


def _height(share: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * (min(max(share, LOW), HIGH) - LOW) / (HIGH - LOW)
