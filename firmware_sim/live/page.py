"""The demo in a browser: the curves of all models while they grow, on this machine alone.

The gateway's own pages cannot show them, since a gateway does not know the models that the demo
compares its nodes with.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from firmware_sim.scenario.recording import STYLES, recording
from firmware_sim.scenario.rivals import RESTARTED, ZERO_FILLING
from firmware_sim.scenario.score import FIRST, MODELS, SERVED, AfterChange, Score

MEANING = {
    SERVED: "solves for the sensors it has",
    ZERO_FILLING: "keeps its model and puts zeros where a sensor is missing",
    RESTARTED: "learns a new model after each change",
}
HTML = """<!doctype html><html lang="en"><meta charset="utf-8"><title>edge-opid: the demo</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<style>
:root {{ --ours: #0b7a57; --zeros: #b8452d; --anew: #5d6b85; --line: #ddd; --quiet: #666 }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ours: #3ddc97; --zeros: #ff8a70; --anew: #b6c2d6; --line: #444; --quiet: #aaa }}
}}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: auto; padding: 1rem }}
h1 {{ font-size: 1.4rem; line-height: 1.25; margin: 0 0 .5rem }}
p {{ margin: .5rem 0 }} .quiet {{ color: var(--quiet) }}
ul {{ list-style: none; padding: 0; margin: .75rem 0 }}
li b {{ display: inline-block; min-width: 3.5rem }}
li.ours {{ color: var(--ours) }} li.zeros {{ color: var(--zeros) }} li.anew {{ color: var(--anew) }}
svg {{ display: block; width: 100%; height: auto }}
table {{ border-collapse: collapse; width: 100%; margin: 1rem 0 }}
caption {{ text-align: left; padding-bottom: .25rem }}
th, td {{ text-align: right; vertical-align: bottom; padding: .3rem .4rem;
  border-bottom: 1px solid var(--line) }}
th {{ font-weight: normal; color: var(--quiet) }}
th:first-child, td:first-child {{ text-align: left }}
td.ours {{ color: var(--ours); font-weight: 600 }}
@media (max-width: 40rem) {{
  svg text, svg .small {{ font-size: 22px }} table {{ font-size: .875rem }}
}}
</style>
<h1>{title}</h1>
<p>Every model gets the same readings and the same labels. Each change of the sensors is marked.</p>
<main id="now"><p>The broker, the gateway and the nodes are starting.</p></main>
<p id="fleet">The same fleet as its operator sees it:
<a href="http://127.0.0.1:{port}/">the gateway's pages</a>. They take a few seconds to start.</p>
<script>
const now = document.getElementById("now"), fleet = document.getElementById("fleet");
async function look() {{
  try {{
    now.innerHTML = await (await fetch("/now")).text();
    setTimeout(look, 500);
  }} catch {{
    fleet.textContent = "The demo has ended. The terminal says where it wrote a table, a plot "
      + "and this drawing. Start it again and reload this page to see it again.";
  }}
}}
look();
</script></html>"""


def standing(score: Score) -> str:
    """How it stands, as HTML: who is right how often, the curves, and what each change cost.

    >>> from firmware_sim.scenario.scenario import load_scenario
    >>> from firmware_sim.scenario.script import Script
    >>> score = Score(Script(load_scenario("one_retire"), seed=7))
    >>> "are starting" in standing(score), "<table>" in standing(score)
    (True, False)
    """
    if score.played == 0:
        return "<p>The broker, the gateway and the nodes are starting.</p>"
    changes = [change for change in score.after_changes() if change.at < score.played]
    last = f"last change: {changes[-1].words}" if changes else "all sensors work"
    where = f"Reading {score.played} of {score.script.scenario.readings}; {escape(last)}."
    parts = [
        f'<p>{where} <span class="quiet">Right over the last 50 readings:</span></p>',
        "<ul>",
        *(
            f'<li class="{STYLES[name]}"><b>{_percent(score.lately(name))}</b> {name}: '
            f'<span class="quiet">{words}</span></li>'
            for name, words in MEANING.items()
        ),
        "</ul>",
        recording(score, _title(score), live=True),
        *(_table(changes) if changes else ()),
    ]
    return "\n".join(parts)


def _table(changes: Sequence[AfterChange]) -> Iterator[str]:
    caption = f"Right in the first {FIRST} labelled readings after each change"
    yield f"<table><caption>{caption}</caption>"
    yield f"<tr><th>change{''.join(f'<th>{name}' for name in MODELS)}</tr>"
    for change in changes:
        cells = (
            f'<td class="{STYLES.get(name, "")}">{_percent(change.accuracy[name])}'
            for name in MODELS
        )
        yield f"<tr><td>{escape(change.words)}{''.join(cells)}</tr>"
    yield '</table><p class="quiet">“keeps all readings” is the best a linear model can do. '
    yield "A node keeps none.</p>"


def _title(score: Score) -> str:
    about = score.script.scenario.about
    return about[:1].upper() + about[1:]


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.0f} %"


class DemoPage:
    """`with DemoPage(score, port, gateway_port):` serves it until the block ends."""

    def __init__(self, score: Score, port: int, gateway_port: int) -> None:
        page = HTML.format(title=escape(_title(score)), port=gateway_port).encode()

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/":
                    kind, body = "text/html; charset=utf-8", page
                elif self.path == "/now":
                    kind, body = "text/html; charset=utf-8", standing(score).encode()
                else:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """The screen is for the demo."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Answer)
        self.port = self._server.server_address[1]

    def __enter__(self) -> DemoPage:
        threading.Thread(target=self._server.serve_forever, name="page", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
