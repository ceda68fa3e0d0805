"""Metrics, alert rules and the dashboard, held together by a real Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from support.mosquitto import free_port, needed
from support.node_process import wait_until
from support.web_site import Pages, opened

from firmware_sim.live.processes import Child

FOLDER = Path(__file__).parent.parent / "docs" / "prometheus"
BOARD = json.loads((FOLDER / "grafana.json").read_text())
EMPTY = ("opid_gateway_events_total",)  # counters of a gateway that does not run here
RANGES = re.compile(r"\[(?:5m|15m|1d)\]")


def program(name):
    return needed(shutil.which(name), f"{name} is not installed: apt-get install prometheus")


def board_expressions():
    """Every expression of the dashboard, with its variables as Grafana fills them for All."""
    found = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    found += [
        re.match(r"label_values\((.*), \w+\)", each["definition"])[1]
        for each in BOARD["templating"]["list"]
        if each["type"] == "query"
    ]
    return [each.replace("$site", ".*").replace("$node", ".*") for each in found]


def rule_expressions():
    text = (FOLDER / "alerts.yml").read_text()
    return [
        " ".join(each.split())
        for each in re.findall(r"expr: (?:>\n)?(.*?)\n        for:", text, re.S)
    ]


def test_the_rules_fire_when_they_should_and_not_before():
    tool = program("promtool")
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            [tool, *words], cwd=FOLDER, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_a_test():
    names = re.findall(r"alert: (\w+)", (FOLDER / "alerts.yml").read_text())
    tested = set(re.findall(r"alertname: (\w+)", (FOLDER / "alerts_test.yml").read_text()))
    assert tested == set(names)
    assert len(rule_expressions()) == len(names)


def test_prometheus_own_tool_finds_nothing_wrong_with_the_metrics(tmp_path):
    tool = program("promtool")
    with opened(tmp_path) as (_, client):
        text = client.get("/metrics").text
    done = subprocess.run(
        [tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    node = '{site="farm",node="n1",group="climate"}'
    assert f"opid_node_online{node} 1\n" in text
    assert f"opid_node_readings_total{node} 500\n" in text
    assert (
        'opid_node_accuracy_ratio{site="farm",node="n1",group="climate",predictor="own"} 0.91'
        in text
    )
    assert 'reason="rate-limited"} 3\n' in text
    assert 'opid_sensors{state="silent"} 1\n' in text


def test_rules_and_dashboard_use_only_what_is_served(tmp_path):
    """A metric is renamed: an alert that cannot fire looks like a fleet without trouble."""
    with opened(tmp_path) as (_, client):
        served = set(re.findall(r"^# TYPE (\w+)", client.get("/metrics").text, re.M))
    served |= {"opid_gateway_connected"}  # where a running gateway writes its status file
    used = set(re.findall(r"\bopid_\w+", " ".join([*rule_expressions(), *board_expressions()])))
    assert used - served == set()


class Prometheus(Child):
    """Debian's, on a port of its own, asking once a second."""

    def __init__(self, folder, target):
        self.port = free_port()
        folder.mkdir()
        text = (FOLDER / "prometheus.yml").read_text()
        text = text.replace("127.0.0.1:8470", target).replace("30s", "1s")
        (folder / "prometheus.yml").write_text(
            text.replace("alerts.yml", str(FOLDER / "alerts.yml"))
        )
        command = [
            program("prometheus"), f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{self.port}",
        ]  # fmt: skip
        super().__init__("prometheus", command, folder / "prometheus.log")

    def ask(self, expression):
        query = urllib.parse.urlencode({"query": expression})
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{query}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            pytest.fail(f"{expression}: {error.read().decode()}")
        except OSError:
            return []


def test_a_real_prometheus_answers_every_expression_of_the_dashboard(tmp_path):
    """Grafana cannot be had everywhere; what it would ask can be asked."""
    program("prometheus")
    with opened(tmp_path):
        pass  # the database of a small fleet
    with Pages(tmp_path) as pages, Prometheus(tmp_path / "p", f"127.0.0.1:{pages.port}") as server:

        def scraped():
            pages.check()
            server.check()
            found = server.ask("count_over_time(opid_node_online[1m]) >= 3")
            return len(found) == 2

        wait_until(scraped, "Prometheus has read the metrics three times", pause_s=0.3)
        for expression in board_expressions():
            asked = RANGES.sub("[1m]", expression)  # a minute is all there is
            found = server.ask(asked)
            assert found or any(name in asked for name in EMPTY), asked
        for expression in rule_expressions():
            server.ask(expression)
        assert server.ask("opid_gateway_up")[0]["value"][1] == "0", "no gateway runs here"
