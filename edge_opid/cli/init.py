"""`init`: from an installed program to a service: user, folders, modes, unit, a first `node.toml`.

1. Nothing is overwritten: what is there stays, and only who may read it is put right.
2. Everything is decided before anything is done; `--dry-run` ends there.
3. A unit that the Debian package brought is left to it: one in /etc would hide its upgrades.
4. A second `init` finds nothing to do, or finishes what the first one could not.

A `node.toml` that is there (a gateway made it) is kept. Otherwise the first one lists what a broker
has to offer (`discover`), or an example where none answers.
"""

from __future__ import annotations

import os
import shlex
import socket
import stat
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from edge_opid.cli.discover import listen, options_for, told
from edge_opid.cli.output import print_lines
from edge_opid.config.service import parse_config
from edge_opid.config.starting_file import EXAMPLE_SENSOR, starting_file
from edge_opid.discovery.names import cut, slug
from edge_opid.discovery.proposal import Known, propose, toml_lines
from edge_opid.errors import ConfigError
from edge_opid.link.contract import LinkError
from edge_opid.store.whole_file import write_whole

FOLDER, STATE, UNITS = "etc/opid-node", "var/lib/opid-node", "etc/systemd/system"
PACKAGED = "usr/lib/systemd/system"  # the unit of the Debian package, which an upgrade replaces
UNIT, PROGRAM = "opid-node.service", "/opt/opid-node/bin/opid-node"
PYTHON = "/opt/opid-node/bin/python"
SECRETS = ("credentials", "*.key")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is missing, and how to make it."""

    words: str
    do: Callable[[], object]


def init(given: Namespace) -> int:
    """Do what is missing, or say it; then say what is left."""
    if os.geteuid() != 0 and not given.dry_run:
        words = shlex.join(["sudo", str(_program()), *sys.argv[1:]])
        raise ConfigError(
            f"init creates a user and files owned by root: run {words}, or add --dry-run"
        )
    place = Place(given.root.absolute(), given.user)
    steps = [*place.missing(_first_file(given, place), given.credentials)]
    for step in steps:
        if not given.dry_run:
            step.do()
    verb = "would " if given.dry_run else ""
    print_lines(
        [f"{verb}{step.words}" for step in steps] or ["nothing is missing; nothing was done"]
    )
    print_lines(_left_to_do(place))
    return 0


class Place:
    """A machine below `root`, and what of a node's service is missing there."""

    def __init__(self, root: Path, user: str) -> None:
        self.root, self.user = root, user
        self.folder, self.state, self.units = root / FOLDER, root / STATE, root / UNITS
        self.config = self.folder / "node.toml"

    def missing(self, first_file: Callable[[], str], credentials: Path | None) -> Iterator[Step]:
        """What must be made, in order. The user is first: the rest is given to it."""
        if self._ids() is None:
            yield Step(f"create the user {self.user}", self._make_user)
        yield from self._folder(self.folder, 0o750, owned=False)
        yield from self._folder(self.state, 0o700, owned=True)
        made = []
        secret = self.folder / "credentials"
        if credentials is not None and not secret.exists():
            yield _writing(secret, credentials.read_bytes(), 0o640)
            made.append(secret)
        if not self.config.exists():
            yield _writing(self.config, first_file().encode(), 0o640)
            made.append(self.config)
        unit = self.units / UNIT
        if not (unit.exists() or (self.root / PACKAGED / UNIT).exists()):
            yield _writing(unit, self._unit().encode(), 0o644)
        yield from self._readable(made)

    def _folder(self, folder: Path, mode: int, *, owned: bool) -> Iterator[Step]:
        if not folder.exists():
            words = f"create {folder}, mode {mode:04o}"
            yield Step(words, lambda: self._make_folder(folder, mode, owned=owned))

    def _make_folder(self, folder: Path, mode: int, *, owned: bool) -> None:
        folder.mkdir(parents=True)
        folder.chmod(mode)
        uid, gid = self._ids() or (0, 0)
        os.chown(folder, uid if owned else 0, gid)

    def _readable(self, made: list[Path]) -> Iterator[Step]:
        """The service's group may read its configuration and password; others may not."""
        ids = self._ids()
        there = [self.folder, self.config]
        there += [path for name in SECRETS for path in sorted(self.folder.glob(name))]
        for path in there:
            mode = 0o750 if path == self.folder else 0o640
            if path.exists() and not _is_open_to(path, ids, mode):
                yield self._opened(path, mode)
        for path in made:
            yield self._opened(path, 0o640)

    def _opened(self, path: Path, mode: int) -> Step:
        def give() -> None:
            os.chown(path, 0, (self._ids() or (0, 0))[1])
            path.chmod(mode)

        return Step(f"let the group {self.user} read {path}, mode {mode:04o}", give)

    def _make_user(self) -> None:
        command = ["useradd", "--system", "--user-group", "--no-create-home"]
        command += ["--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"]
        if self.root != Path("/"):
            (self.root / "etc").mkdir(parents=True, exist_ok=True)
            command += ["--prefix", str(self.root)]
        try:
            subprocess.run([*command, self.user], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", "") or error
            raise ConfigError(f"the user {self.user} cannot be created: {said}".strip()) from error

    def _ids(self) -> tuple[int, int] | None:
        """User and group number, from the files of this root; None where there is no such user."""
        try:
            lines = (self.root / "etc/passwd").read_text("utf-8").splitlines()
        except OSError:
            return None
        for name, _, uid, gid, *_ in (line.split(":") for line in lines if line.count(":") == 6):
            if name == self.user:
                return int(uid), int(gid)
        return None

    def _unit(self) -> str:
        """The unit that comes with the package, for this program and this user."""
        text = files("edge_opid.service").joinpath(UNIT).read_text("utf-8")
        text = text.replace(PROGRAM, str(_program())).replace(PYTHON, f"{sys.prefix}/bin/python")
        for key in ("User", "Group"):
            text = text.replace(f"{key}=opid-node", f"{key}={self.user}")
        return text


def _writing(path: Path, data: bytes, mode: int) -> Step:
    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data, mode=mode)

    return Step(f"write {path}", write)


def _is_open_to(path: Path, ids: tuple[int, int] | None, mode: int) -> bool:
    found = path.stat()
    return ids is not None and found.st_gid == ids[1] and stat.S_IMODE(found.st_mode) == mode


def _program() -> Path:
    """The program as the unit will call it: the one of this environment."""
    return Path(sys.prefix) / "bin" / "opid-node"


def _first_file(given: Namespace, place: Place) -> Callable[[], str]:
    """The text of a `node.toml` that is not there yet, made when it is needed."""
    classes = tuple(given.classes or ())
    if not place.config.exists() and len(classes) < 2:
        raise ConfigError(
            "init needs the classes to tell apart: add --class empty --class occupied, or "
            f"put the folder that opid-gateway init created at {place.folder}"
        )

    def text() -> str:
        options = options_for(given)
        node = given.node or cut(slug(socket.gethostname())) or "node"
        try:
            heard = listen(options, ["#"], given.seconds)
            proposal = propose(heard, Known(classes=classes))
            lines = [told(proposal, options, given.seconds), "", *toml_lines(proposal)]
            sensors = "".join(f"{line}\n" for line in lines)
            if not proposal.sensors:
                sensors = EXAMPLE_SENSOR + "\n" + sensors
        except LinkError as error:
            sys.stderr.write(
                f"opid-node: no broker answered ({error}): node.toml has an example sensor\n"
            )
            sensors = EXAMPLE_SENSOR
        found = starting_file(
            site=given.site,
            node=node,
            classes=classes,
            host=options.host,
            port=options.port,
            credentials=None if given.credentials is None else "credentials",
            tls_ca=None if given.tls_ca is None else str(given.tls_ca.absolute()),
            sensors=sensors,
        )
        parse_config(found, {}, place.config)  # what no node would take is not written
        return found

    return text


def _left_to_do(place: Place) -> Iterator[str]:
    program = _program()
    yield ""
    yield "what remains to be done:"
    yield f"- edit {place.config} and check it: sudo {program} check {place.config}"
    if program.is_relative_to("/home") or program.is_relative_to("/root"):
        yield f"- install the program elsewhere, as in /opt/opid-node: the unit hides {program}"
    yield "- start it: sudo systemctl daemon-reload && sudo systemctl enable --now opid-node"
    yield f"- see how it is doing: sudo {program} status"
