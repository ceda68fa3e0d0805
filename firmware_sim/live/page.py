"""The demo in a browser: the curves of all models while they grow, on this machine alone.

The gateway's own pages cannot show them, since a gateway does not know the models that the demo
compares its nodes with.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from firmware_sim.scenario.recording import recording
from firmware_sim.scenario.score import Score

HTML = """<!doctype html><html lang="en"><meta charset="utf-8"><title>edge-opid: the demo</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<style>body {{ font: 16px system-ui, sans-serif; max-width: 60rem; margin: auto; padding: 1rem }}
#film {{ overflow-x: auto }} #film svg {{ min-width: 34rem }}</style>
<main id="film"></main>
<p>All models see the same readings and the same labels. Each change of the sensors is marked.</p>
<p>The same fleet as its operator sees it:
<a href="http://127.0.0.1:{port}/">the gateway's pages</a> (they take a few seconds to start).</p>
<script>
async function look() {{
  const answer = await fetch("/film.svg");
  document.getElementById("film").innerHTML = await answer.text();
  setTimeout(look, 500);
}}
look();
</script></html>"""


class DemoPage:
    """`with DemoPage(score, title, port, gateway_port):` serves it until the block ends."""

    def __init__(self, score: Score, title: str, port: int, gateway_port: int) -> None:
        page = HTML.format(port=gateway_port).encode()

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/":
                    kind, body = "text/html; charset=utf-8", page
                elif self.path == "/film.svg":
                    kind, body = "image/svg+xml", recording(score, title, live=True).encode()
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
