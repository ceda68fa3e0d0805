"""A folder with everything a new fleet needs: keys, passwords, the broker's rules, configurations.

    keys/gateway.key, gateway.pub        what signs orders, and what nodes know it by
    keys/*.credentials                   user and password of the gateway, the pages, the operator
    keys/web.token                       what opens the pages to other machines
    nodes/<site>-<node>/                 to be carried to the node: its configuration and password,
                                         and the passwords of its sensors
    mosquitto/acl, passwords, opid.conf  what the broker reads; mosquitto.conf instead of opid.conf
                                         where it serves others, too: all that it reads
    sites/<site>/                        to be carried to the machine of a site's own broker: what
                                         it reads, and its bridge to the central one
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
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from nacl.signing import SigningKey

from edge_opid.config.service import parse_config as parse_node_config
from edge_opid.link.contract import LinkError
from edge_opid.link.options import read_credentials
from gateway import config as gateway_config
from gateway.secret_files import load_signing_key
from gateway.setup.file_writer import PUBLIC, SECRET, FileWriter, FolderError, open_writer
from gateway.setup.group_list import with_nodes
from gateway.setup.mosquitto_files import (
    conf,
    conf_beside,
    ended,
    names_in,
    password_line,
    site_conf,
    with_node_rules,
    with_rules,
)
from gateway.setup.other_broker import read_conf
from gateway.setup.plan import SetupPlan
from gateway.setup.site_broker import bridge_conf
from gateway.setup.starting_files import gateway_toml, node_toml

__all__ = ["FolderError", "SetupPlan", "add_nodes", "initialise", "known_task", "next_steps"]

UNFINISHED = "init.unfinished"
WEB_TOKEN = "keys/web.token"
CONFIG, KEY, PUBLIC_KEY = "gateway.toml", "keys/gateway.key", "keys/gateway.pub"
ACL, PASSWORDS, CONF = "mosquitto/acl", "mosquitto/passwords", "mosquitto/opid.conf"
WHOLE_CONF = "mosquitto/mosquitto.conf"
SITE_HOME = Path("/etc/opid-broker")
"""Where the files of a site's own broker lie on its machine."""
PASSWORD_BYTES = 24
TOKEN_BYTES = 32


def initialise(folder: Path, plan: SetupPlan, beside: Path | None = None) -> list[Path]:
    """Make the folder; what was written. A folder that holds anything else is refused.

    `beside` is the mosquitto.conf of a broker that others use.
    """
    folder, text = folder.absolute(), gateway_toml(plan)
    if not str(folder).isprintable():
        raise FolderError(f"{str(folder)!r} must be printable: a line break would end a setting")
    gateway_config.parse_config(text, {}, folder / CONFIG)
    _check_nodes(plan)
    if beside is None:
        name, rules = CONF, conf(folder / "mosquitto", plan)
    else:
        name, rules = WHOLE_CONF, conf_beside(read_conf(beside), folder / "mosquitto", plan)
    begun = json.dumps(asdict(plan), indent=1) + "\n"
    with open_writer(folder) as writer:
        _refuse_unless_ours(writer, begun)
        writer.write_new(UNFINISHED, begun, PUBLIC)
        writer.write_new(KEY, bytes(SigningKey.generate()).hex() + "\n", SECRET)
        key = load_signing_key(folder / KEY)
        writer.write_new(PUBLIC_KEY, key.verify_key.encode().hex() + "\n", PUBLIC)
        _fill(writer, plan, key)
        writer.write_new(name, rules, PUBLIC)
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
        raise FolderError(
            f"{folder} is not complete, so nothing can be added to it: run init first"
        )
    with open_writer(folder) as writer:
        given = gateway_config.load_config(folder / CONFIG, environment)
        host, port = plan.broker_host or given.broker.host, plan.broker_port or given.broker.port
        plan = replace(plan, broker_host=host, broker_port=port, database=given.database)
        _refuse_another_broker(writer, plan)
        text = with_nodes(writer.read(CONFIG), folder / CONFIG, plan, environment)
        _check_nodes(plan)
        _fill(writer, plan, load_signing_key(given.key_file))
        writer.rewrite(CONFIG, text, PUBLIC)
        return writer.written


def known_task(
    folder: Path,
    group: str,
    environment: Mapping[str, str],
    site: str | None = None,
    classes: tuple[str, ...] = (),
) -> tuple[str, tuple[str, ...]]:
    """Site and classes of a group, from the folder where they were not said."""
    path = folder.absolute() / CONFIG
    if not path.is_file():
        raise FolderError(
            f"{path.parent} is not complete, so nothing can be added to it: run init first"
        )
    for each in gateway_config.load_config(path, environment).groups:
        if each.id == group:
            return site or each.site, classes or each.classes
    if not site or not classes:
        raise FolderError(f"{path} has no group {group!r}: for a new one say --site and --class")
    return site, classes


def next_steps(
    folder: Path, *, added: bool, beside: Path | None = None, site: str | None = None
) -> list[str]:
    """What is left to do for the operator, a line each; `site` has a broker of its own."""
    folder = folder.absolute()
    if site is not None:
        home = folder / "sites" / site
        carry = f"carry {home} to the machine of the site's broker as {SITE_HOME}, and there do as"
        lines = [f"{carry} the first lines of its opid.conf and bridge.conf say"]
        if "\nautosave_on_changes true" not in _text(folder / CONF):
            lines.append(
                f"add autosave_on_changes true and autosave_interval 1 to {folder / CONF}: without "
                "them a crash of the central broker loses what is on its way"
            )
        return lines + next_steps(folder, added=added, beside=beside)
    nodes = f"carry each{' new' * added} folder of {folder / 'nodes'} to its node as /etc/opid-node"
    carry = f"{nodes}, and there: sudo opid-node init"
    if added:
        return [
            "reload the broker's files: systemctl reload mosquitto (or SIGHUP)",
            "restart the gateway, so that it knows the nodes",
            carry,
        ]
    broker = f"install the broker's files, as described in the first lines of {folder / CONF}"
    if beside is not None:
        broker = f"compare {folder / WHOLE_CONF} with {beside}, put it there, restart mosquitto"
    return [
        f"keep a copy of {folder / KEY} where nobody else can read it",
        broker,
        carry,
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
                f"{folder} was started with other settings, see {folder / UNFINISHED}: finish that "
                "one, or delete the folder"
            )
    elif writer.has(CONFIG):
        raise FolderError(
            f"{folder / CONFIG} already exists, and init overwrites nothing: use --add-nodes to "
            "add to it, or another folder"
        )
    elif any(path.name != f"{UNFINISHED}.new" for path in folder.iterdir()):
        raise FolderError(
            f"{folder} must be empty or new, got a folder with other files: use another one"
        )


def _refuse_another_broker(writer: FileWriter, plan: SetupPlan) -> None:
    """A site whose nodes log in at a broker of their own gets no names at the central one."""
    has_own = writer.has(plan.site_folder / "opid.conf")
    if has_own and plan.site_broker is None:
        raise FolderError(
            f"site {plan.site!r} has its own broker, see {writer.folder / plan.site_folder}: "
            "say --site-broker again"
        )
    names = names_in(writer.read(PASSWORDS))
    here = any(name.startswith(f"{plan.site}.") for name in names)
    if plan.site_broker is not None and here and not has_own:
        raise FolderError(
            f"nodes of site {plan.site!r} log in at the central broker: use another site, or "
            "another folder"
        )


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


# --- what both do ---------------------------------------------------------------------------------


def _fill(writer: FileWriter, plan: SetupPlan, key: SigningKey) -> None:
    """Credentials and node folders of whoever is new, then the broker's rules, then its names."""
    writer.write_new(WEB_TOKEN, f"{secrets.token_urlsafe(TOKEN_BYTES)}\n", SECRET)
    passwords, added = _accounts(writer, PASSWORDS, plan.accounts())
    done = names_in(passwords)
    site_passwords = str(plan.site_folder / "passwords")
    if plan.site_broker is not None:
        done |= names_in(writer.read(site_passwords))
    for node in plan.nodes:
        if plan.user(node) not in done:
            text = node_toml(plan, node, key.verify_key.encode().hex())
            writer.write_new(plan.folder(node) / "node.toml", text, PUBLIC)
    if plan.site_broker is not None:
        _fill_site(writer, plan, site_passwords)
    writer.rewrite(ACL, with_rules(writer.read(ACL), plan), SECRET)
    writer.rewrite(PASSWORDS, passwords + added, SECRET)


def _accounts(
    writer: FileWriter, name: str, accounts: Mapping[str, PurePosixPath]
) -> tuple[str, str]:
    """Credentials of whoever is not in this password file yet; its text, and what to add to it."""
    passwords, added = ended(writer.read(name)), ""
    for user, file in accounts.items():
        if user not in names_in(passwords):
            writer.write_new(file, f"{user}\n{secrets.token_urlsafe(PASSWORD_BYTES)}\n", SECRET)
            added += password_line(user, _password(writer.folder / file, user))
    return passwords, added


def _fill_site(writer: FileWriter, plan: SetupPlan, site_passwords: str) -> None:
    """What the site's own broker reads; its names last, as at the centre."""
    folder = plan.site_folder
    place = writer.folder / folder
    passwords, added = _accounts(writer, site_passwords, plan.node_accounts())
    bridge = _password(place / "bridge.credentials", plan.bridge_account)
    writer.write_new(folder / "opid.conf", site_conf(SITE_HOME, plan), PUBLIC)
    writer.write_new(folder / "bridge.conf", bridge_conf(plan, str(SITE_HOME), bridge), SECRET)
    acl = str(folder / "acl")
    writer.rewrite(acl, with_node_rules(writer.read(acl), plan), SECRET)
    writer.rewrite(site_passwords, passwords + added, SECRET)


def _password(path: Path, user: str) -> str:
    """What the file says, which may be from an attempt before this one."""
    try:
        name, password = read_credentials(path)
    except LinkError as error:
        raise FolderError(str(error)) from error
    if name != user:
        raise FolderError(
            f"{path} belongs to user {name!r} and should belong to {user!r}: rename one node"
        )
    return password
