"""`init`: the folder of a new fleet, or more nodes in one; then what remains to be done."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from importlib.resources import files
from pathlib import Path

from edge_opid.store.whole_file import write_whole
from gateway.cli.output import Terminal
from gateway.setup.initialise import add_nodes, initialise, known_task, next_steps
from gateway.setup.owners import give_to_services
from gateway.setup.plan import SetupPlan

SYSTEM = Path("/etc")
UNIT = "opid-gateway.service"
DATABASE = "sqlite:///gateway.sqlite"
SERVICE_STATUS = "/run/opid-gateway/status.json"
SERVICE_DATABASE = "sqlite:////var/lib/opid-gateway/gateway.sqlite"
"""What a service may write: of /etc it sees no more than it reads."""
START = "sudo systemctl daemon-reload && sudo systemctl enable --now opid-gateway"


def init(given: Namespace, screen: Terminal) -> int:
    """Make the folder of a new fleet, or add nodes to one; then say what remains to be done."""
    plan = _plan(given)
    if given.add_nodes:
        written = add_nodes(given.folder, plan, os.environ)
    else:
        written = initialise(given.folder, plan, given.beside)
    if _is_service(given.folder):
        written += _unit(given.folder.absolute(), given.user)
    screen.lines(
        [f"wrote {path}" for path in written] or ["nothing is missing; nothing was written"]
    )
    left = give_to_services(given.folder, given.user)
    if written:
        site = plan.site if plan.site_broker else None
        left += next_steps(given.folder, added=given.add_nodes, beside=given.beside, site=site)
    if _is_service(given.folder) and not given.add_nodes:
        unit = given.folder.absolute() / UNIT
        left.append(f"start it: sudo cp {unit} /etc/systemd/system/ && {START}")
    if left:
        screen.lines(["", "what remains to be done:"])
        screen.lines(f"- {step}" for step in left)
    return 0


def _plan(given: Namespace) -> SetupPlan:
    """What was typed; of a group that is there already, its site and classes need not be."""
    site, classes = given.site, tuple(given.classes)
    if given.add_nodes:
        site, classes = known_task(given.folder, given.group, os.environ, site, classes)
    return SetupPlan(
        site=site or "",
        group=given.group,
        classes=classes,
        nodes=tuple(given.nodes),
        sources=tuple(given.sources),
        broker_host=given.broker_host,
        broker_port=given.broker_port,
        foreign=tuple(given.foreign),
        homeassistant=given.homeassistant,
        site_broker=given.site_broker,
        database=given.database or (SERVICE_DATABASE if _is_service(given.folder) else DATABASE),
        status_file=SERVICE_STATUS if _is_service(given.folder) else None,
    )


def _is_service(folder: Path) -> bool:
    """Whether the folder is where services have theirs."""
    return folder.absolute().is_relative_to(SYSTEM)


def _unit(folder: Path, user: str) -> list[Path]:
    """The unit that comes with the package, for this program, this folder and this user."""
    path = folder / UNIT
    if path.exists():
        return []
    text = files("gateway").joinpath(UNIT).read_text("utf-8")
    text = text.replace("/opt/opid-gateway/bin/opid-gateway", f"{sys.prefix}/bin/opid-gateway")
    text = text.replace("/etc/opid-gateway/gateway.toml", str(folder / "gateway.toml"))
    for key in ("User", "Group"):
        text = text.replace(f"{key}=opid-gateway", f"{key}={user}")
    write_whole(path, text.encode(), mode=0o644)
    return [path]
