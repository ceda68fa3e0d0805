"""A real Home Assistant without a screen: started, onboarded and asked through its REST API.

It runs in a Debian of its own (`.ci/homeassistant` makes it), in a mount and a process namespace
of its own: when its first process ends, however that happens, nothing of it is left.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from firmware_sim.live.mosquitto import HOST, connects, free_port
from firmware_sim.live.processes import Child, Server, wait_until

REPOSITORY = Path(__file__).parents[2]
BLUEPRINT = REPOSITORY / "docs/homeassistant/asked.yaml"
CONFIGURATION = """\
api:
config:
onboarding:
mobile_app:
automation: !include automations.yaml
logger:
  default: warning
"""
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
TIMEOUT_S = 300.0  # for one answer; the first may wait until packages are installed
START_S = 600.0  # the first start installs what its integrations need


class ApiError(RuntimeError):
    """Home Assistant refused something."""


class HomeAssistant(Server):
    """One Home Assistant, whose configuration is new at the beginning and outlives a restart."""

    leashed = False

    def __init__(self, root: Path, folder: Path) -> None:
        self.port, self._token = free_port(), ""
        self.base = f"http://{HOST}:{self.port}"
        self._config = root / "ha/config"
        shutil.rmtree(self._config, ignore_errors=True)
        blueprints = self._config / "blueprints/automation/edge_opid"
        blueprints.mkdir(parents=True)
        shutil.copy(BLUEPRINT, blueprints)
        (self._config / "automations.yaml").write_text("[]\n")
        (self._config / "configuration.yaml").write_text(CONFIGURATION)
        self._listen_here()
        # `unshare` ignores SIGTERM: SIGKILL reaches it when we end, and its child with it.
        namespaces = ["setpriv", "--pdeathsig", "KILL"]
        namespaces += ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        enter = ["/bin/sh", str(REPOSITORY / ".ci/enter-root"), str(root)]
        run = ["/ha/venv/bin/hass", "-c", "/ha/config"]
        super().__init__("home assistant", [*namespaces, *enter, *run], folder / "hass.log")

    def _listen_here(self) -> None:
        """On loopback alone. An address from its YAML is on trial, and taken back after minutes."""
        where = {
            "server_host": [HOST],
            "server_port": self.port,
            "cors_allowed_origins": [],
            "login_attempts_threshold": -1,
            "ip_ban_enabled": False,
            "ssl_profile": "intermediate_v6",
            "use_x_frame_options": True,
            "created_at": "2026-01-01T00:00:00+00:00",
            "error": None,
            "error_message": None,
        }
        data = {"stable": where, "pending": None, "yaml_migration_done": True}
        file = self._config / ".storage/http"
        file.parent.mkdir()
        file.write_text(json.dumps({"version": 3, "minor_version": 1, "key": "http", "data": data}))

    def wait_running(self) -> None:
        """Until all of it has started; packages may have to be installed first."""

        def running() -> bool:
            return bool(self.call("/api/config")["state"] == "RUNNING")

        wait_until(running, "Home Assistant has started", START_S, self.check, 0.5)

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        Child.start(self)
        wait_until(self.answers, "Home Assistant answers", START_S, self.check, 0.5)

    def answers(self) -> bool:
        """Whether its API does."""
        return connects(self.port) and self._status("/api/") != HTTPStatus.SERVICE_UNAVAILABLE

    def stop(self) -> int:
        """Ask the one inside: it saves what it knows."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGTERM)
        process, self.process = self.process, None
        assert process is not None
        self.exit_code = process.wait(TIMEOUT_S)
        return self.exit_code

    # -- the API -------------------------------------------------------------------------------

    def call(self, path: str, body: object = None, *, form: bool = False) -> Any:
        """What it answers to a GET, or to a POST where there is a body."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        data = None
        if body is not None:
            headers["Content-Type"] = (
                "application/x-www-form-urlencoded" if form else "application/json"
            )
            text = urllib.parse.urlencode(body) if form else json.dumps(body)  # type: ignore[arg-type]
            data = text.encode()
        request = urllib.request.Request(self.base + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                found = answer.read()
        except urllib.error.HTTPError as error:
            raise ApiError(f"{path}: {error.code} {error.read()[:300]!r}") from error
        try:
            return json.loads(found)
        except ValueError:
            return found.decode()

    def _status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(self.base + path, timeout=TIMEOUT_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return int(error.code)
        except OSError:
            return HTTPStatus.SERVICE_UNAVAILABLE

    def onboard(self) -> None:
        """The first user, and so a token."""
        who = {"name": "opid", "username": "opid", "password": "opid-opid", "language": "en"}
        client = {"client_id": f"{self.base}/"}
        code = self.call("/api/onboarding/users", {**client, **who})["auth_code"]
        wanted = {**client, "grant_type": "authorization_code", "code": code}
        self._token = self.call("/auth/token", wanted, form=True)["access_token"]

    def add_mqtt(self, port: int, user: str, password: str) -> None:
        """The integration, through the form that a person fills in."""
        flow = self.call("/api/config/config_entries/flow", {"handler": "mqtt"})
        secure = {"set_client_cert": False, "set_ca_cert": "off", "transport": "tcp"}
        account = {"username": user, "password": password}
        broker = {"broker": HOST, "port": port, "protocol": "5", "other_settings": secure}
        done = self.call(f"/api/config/config_entries/flow/{flow['flow_id']}", broker | account)
        if done["type"] != "create_entry":
            raise ApiError(f"the MQTT integration was refused: {done}")

    def states(self) -> dict[str, dict[str, Any]]:
        """Every entity that is shown, by its id."""
        return {each["entity_id"]: each for each in self.call("/api/states")}

    def state(self, entity: str) -> str:
        """What one of them says; empty where there is none."""
        try:
            return str(self.call(f"/api/states/{entity}")["state"])
        except ApiError:
            return ""

    def attributes(self, entity: str) -> dict[str, Any]:
        """What it says besides."""
        try:
            return dict(self.call(f"/api/states/{entity}")["attributes"])
        except ApiError:
            return {}

    def registered(self, entity: str) -> list[str]:
        """All entities that its registry has for the device of this one, shown or not."""
        template = f"{{{{ device_entities(device_id('{entity}')) | sort | tojson }}}}"
        found = self.call("/api/template", {"template": template})
        return list(json.loads(found) if isinstance(found, str) else found)

    def serve(self, domain: str, service: str, **data: object) -> None:
        """Call one of its services ("actions")."""
        self.call(f"/api/services/{domain}/{service}", data)

    def add_phone(self, push_port: int) -> str:
        """The app of a phone, whose notifications go to this port; the id of its device."""
        about = {
            "app_id": "edge_opid",
            "app_name": "edge-opid",
            "app_version": "1",
            "device_id": "phone-1",
            "device_name": "Phone",
            "manufacturer": "Acme",
            "model": "One",
            "os_name": "Android",
            "os_version": "16",
            "supports_encryption": False,
            "app_data": {"push_token": "token", "push_url": f"http://{HOST}:{push_port}/push"},
        }
        hook = self.call("/api/mobile_app/registrations", about)["webhook_id"]
        battery = {"name": "Battery", "state": 50, "type": "sensor", "unique_id": "battery"}
        self.call(f"/api/webhook/{hook}", {"type": "register_sensor", "data": battery})
        wait_until(lambda: self.state("sensor.phone_battery"), "the phone is there", pause_s=0.2)
        template = {"template": "{{ device_id('sensor.phone_battery') }}"}
        return str(self.call("/api/template", template))

    def add_automation(self, name: str, inputs: Mapping[str, object]) -> None:
        """An automation from our blueprint."""
        blueprint = {"path": "edge_opid/asked.yaml", "input": dict(inputs)}
        config = {"alias": name, "description": "", "use_blueprint": blueprint}
        self.call(f"/api/config/automation/config/{name}", config)
        wait_until(lambda: self.state(f"automation.{name}") == "on", "it is on", pause_s=0.2)

    def tap(self, action: str) -> None:
        """A button of a notification."""
        self.call("/api/events/mobile_app_notification_action", {"action": action})


class Phone:
    """Where the notifications of the app arrive, instead of at a service of its vendor's."""

    def __init__(self) -> None:
        self.pushed: list[dict[str, Any]] = []
        pushed = self.pushed

        class Push(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                pushed.append(json.loads(self.rfile.read(length)))
                self.send_response(HTTPStatus.CREATED)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                """Nothing: our output is a table."""

        self._server = HTTPServer((HOST, 0), Push)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Phone:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
