"""A folder with everything a new fleet needs: keys, passwords, the broker's rules, configurations.

    keys/gateway.key, gateway.pub        what signs orders, and what nodes know it by
    keys/*.credentials                   user and password of the gateway and of the operator
    nodes/<site>-<node>/                 to be carried to the node: its configuration and password,
                                         and the passwords of its sensors
    mosquitto/acl, passwords, opid.conf  what the broker reads
    gateway.toml                         what the gateway reads

The order matters where the work may be cut off: a node's folder is complete before its names are in
`mosquitto/passwords`, so a name that stands there is done (its folder may be on the node by now,
and is not made again), and `gateway.toml` is last. Until then `UNFINISHED` lies in the folder; the
same call again then goes on, with the secrets that are there.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

from nacl.signing import SigningKey

from edge_opid.config.service import parse_config as parse_node_config
from edge_opid.link.contract import LinkError
from edge_opid.link.options import read_credentials
from gateway import config as gateway_config
from gateway.secret_files import load_signing_key
from gateway.setup.file_writer import PUBLIC, SECRET, FileWriter, FolderError, open_writer
from gateway.setup.group_list import with_nodes
from gateway.setup.mosquitto_files import conf, ended, names_in, password_line, with_rules
from gateway.setup.plan import SetupPlan
from gateway.setup.starting_files import gateway_toml, node_toml

__all__ = ["FolderError", "SetupPlan", "add_nodes", "initialise", "next_steps"]

UNFINISHED = "init.unfinished"
CONFIG, KEY, PUBLIC_KEY = "gateway.toml", "keys/gateway.key", "keys/gateway.pub"
ACL, PASSWORDS, CONF = "mosquitto/acl", "mosquitto/passwords", "mosquitto/opid.conf"
PASSWORD_BYTES = 24


def initialise(folder: Path, plan: SetupPlan) -> list[Path]:
    """Make the folder; what was written. A folder that holds anything else is refused."""
    folder, text = folder.absolute(), gateway_toml(plan)
    if not str(folder).isprintable():
        raise FolderError(f"{str(folder)!r} must be printable: a line break would end a setting")
    gateway_config.parse_config(text, {}, folder / CONFIG)
    _check_nodes(plan)
    begun = json.dumps(asdict(plan), indent=1) + "\n"
    with open_writer(folder) as writer:
        _refuse_unless_ours(writer, begun)
        writer.write_new(UNFINISHED, begun, PUBLIC)
        writer.write_new(KEY, bytes(SigningKey.generate()).hex() + "\n", SECRET)
        key = load_signing_key(folder / KEY)
        writer.write_new(PUBLIC_KEY, key.verify_key.encode().hex() + "\n", PUBLIC)
        _fill(writer, plan, key)
        writer.write_new(CONF, conf(folder / "mosquitto", plan), PUBLIC)
        writer.write_new(CONFIG, text, PUBLIC)
        writer.remove(UNFINISHED)
        return [path for path in writer.written if path.name != UNFINISHED]


def add_nodes(
    folder: Path, plan: SetupPlan, environment: Mapping[str, str] = MappingProxyType({})
) -> list[Path]:
    """Add what of the plan is not there yet: nodes, sources, a group; what was written.

    Keys, passwords and rules that exist stay as they are, also those somebody else added. The
    `environment` counts as it does for the gateway.
    """
    folder = folder.absolute()
    if not (folder / CONFIG).is_file() or (folder / UNFINISHED).exists():
        raise FolderError(f"{folder} is not finished, there is nothing to add to: run init first")
    with open_writer(folder) as writer:
        given = gateway_config.load_config(folder / CONFIG, environment)
        host, port = plan.broker_host or given.broker.host, plan.broker_port or given.broker.port
        plan = replace(plan, broker_host=host, broker_port=port)
        text = with_nodes(writer.read(CONFIG), folder / CONFIG, plan, environment)
        _check_nodes(plan)
        _fill(writer, plan, load_signing_key(given.key_file))
        writer.rewrite(CONFIG, text, PUBLIC)
        return writer.written


def next_steps(folder: Path, *, added: bool) -> list[str]:
    """What is left to do for the operator, a line each."""
    folder = folder.absolute()
    if added:
        return [
            "tell the broker to read its files again: systemctl reload mosquitto (or SIGHUP)",
            "restart the gateway, so that it knows the nodes",
            f"carry each new folder of {folder / 'nodes'} to its node, as /etc/opid-node",
        ]
    return [
        f"keep a copy of {folder / KEY} where nobody else gets at it",
        f"give the broker its files, as the first lines of {folder / CONF} say",
        f"carry each folder of {folder / 'nodes'} to its node, as /etc/opid-node",
        f"check and run the gateway: opid-gateway check {folder / CONFIG}",
    ]


# --- before anything is written -------------------------------------------------------------------


def _check_nodes(plan: SetupPlan) -> None:
    """What we are about to write must be what a node will take."""
    for node in plan.nodes:
        parse_node_config(node_toml(plan, node, "0" * 64), {})


def _refuse_unless_ours(writer: FileWriter, begun: str) -> None:
    """A new folder, an empty one, or one in which this very plan was cut off."""
    folder = writer.folder
    if writer.has(UNFINISHED):
        if writer.read(UNFINISHED) != begun:
            raise FolderError(
                f"{folder} was begun with another plan, see {folder / UNFINISHED}: finish that "
                "one, or delete the folder"
            )
    elif writer.has(CONFIG):
        raise FolderError(
            f"{folder / CONFIG} exists already, and init overwrites nothing: use --add-nodes to "
            "add to it, or take another folder"
        )
    elif any(path.name != f"{UNFINISHED}.new" for path in folder.iterdir()):
        raise FolderError(
            f"{folder} must be empty or new, got a folder with other files: take another one"
        )


# --- what both do ---------------------------------------------------------------------------------


def _fill(writer: FileWriter, plan: SetupPlan, key: SigningKey) -> None:
    """Credentials and node folders of whoever is new, then the broker's rules, then its names."""
    passwords = ended(writer.read(PASSWORDS))
    done = names_in(passwords)
    accounts = {user: file for user, file in plan.accounts().items() if user not in done}
    added = ""
    for user, file in accounts.items():
        writer.write_new(file, f"{user}\n{secrets.token_urlsafe(PASSWORD_BYTES)}\n", SECRET)
        added += password_line(user, _password(writer.folder / file, user))
    for node in plan.nodes:
        if plan.user(node) not in done:
            text = node_toml(plan, node, key.verify_key.encode().hex())
            writer.write_new(plan.folder(node) / "node.toml", text, PUBLIC)
    writer.rewrite(ACL, with_rules(writer.read(ACL), plan), SECRET)
    writer.rewrite(PASSWORDS, passwords + added, SECRET)


def _password(path: Path, user: str) -> str:
    """What the file says, which may be from an attempt before this one."""
    try:
        name, password = read_credentials(path)
    except LinkError as error:
        raise FolderError(str(error)) from error
    if name != user:
        raise FolderError(f"{path} is of user {name!r} and should be of {user!r}: rename one node")
    return password
