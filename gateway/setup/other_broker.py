"""A broker that serves others already, with our listener beside theirs.

mosquitto has one set of passwords and rules for all of its listeners, unless
`per_listener_settings true` stands before all of them. So their configuration is written anew, in
other words: that line first, what was said for everybody under each of their listeners, and ours
last. Their accounts keep their passwords, their rules, their client ids and their port; the topics
are shared, as before. Their own files are only read.

What is said for all listeners at once stays where it is. Includes are put in their place, because a
rule may stand in any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gateway.setup.file_writer import FolderError

PER_LISTENER = "per_listener_settings"
RULES = (
    "acl_file",
    "allow_anonymous",
    "allow_zero_length_clientid",
    "auth_plugin",
    "auto_id_prefix",
    "password_file",
    "plugin",
    "psk_file",
)
"""What `per_listener_settings` is about, beside `auth_opt_…` and `plugin_opt_…`."""
FILES_MAX = 64  # more includes than anybody has; fewer than a circle of them


def read_conf(path: Path) -> str:
    """Their configuration with the files of every `include_dir` in place, as mosquitto reads it."""
    return "".join(f"{line}\n" for line in _lines(path, []))


def _lines(path: Path, read: list[Path]) -> Iterator[str]:
    read.append(path)
    if len(read) > FILES_MAX:
        raise FolderError(f"{read[0]} includes more than {FILES_MAX} files: is it a circle?")
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FolderError(f"{path} cannot be read: {error}") from error
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        if key == "include_dir":
            yield f"# {line.strip()}: its files follow"
            for each in sorted(Path(value.strip()).glob("*.conf")):
                yield from _lines(each, read)
        else:
            yield line


def with_listener(theirs: str, ours: str, port: int) -> str:
    r"""Their configuration with rules for each listener, and `ours` behind it.

    >>> theirs = "password_file passwd\nlistener 1883\n"
    >>> print(with_listener(theirs, "listener 1884\n", 1884), end="")
    per_listener_settings true
    listener 1883
    password_file passwd
    listener 1884
    """
    lines = [line.strip() for line in theirs.splitlines()]
    settings = [line for line in lines if line and not line.startswith("#")]
    rules = [line for line in settings if _is_rule(line)]
    default = _default_listener(settings, rules)
    _refuse_their_port([*settings, *default], port)
    if any(line.split() == [PER_LISTENER, "true"] for line in settings):
        return "".join(f"{line}\n" for line in lines) + ours
    found = [PER_LISTENER + " true", *default]
    for line in lines:
        if _is_rule(line) or _key(line) in (PER_LISTENER, "port", "bind_address"):
            continue
        found.append(line)
        if _key(line) == "listener":
            found += rules
    return "".join(f"{line}\n" for line in found) + ours


def _default_listener(settings: list[str], rules: list[str]) -> list[str]:
    """The listener that mosquitto 2 makes where none is named: this machine's, open to everybody.

    An old file names it by `port` or `bind_address`, perhaps beside others; then it is for all, and
    needs a word about strangers.
    """
    given = {_key(line): line.partition(" ")[2].strip() for line in settings}
    if "port" in given or "bind_address" in given:
        where = f"{given.get('port', '1883')} {given.get('bind_address', '')}"
        return [f"listener {where}".strip(), *rules]
    if "listener" in given:
        return []
    anonymous = [] if "allow_anonymous" in given else ["allow_anonymous true"]
    return ["listener 1883 localhost", *anonymous, *rules]


def _refuse_their_port(settings: list[str], port: int) -> None:
    named = [line.split()[1:2] for line in settings if _key(line) == "listener"]
    if [str(port)] in named:
        raise FolderError(
            f"port {port} is used by an existing listener: choose another, such as --broker-port "
            "1884"
        )


def _is_rule(line: str) -> bool:
    key = _key(line)
    return key in RULES or key.startswith(("auth_opt_", "plugin_opt_"))


def _key(line: str) -> str:
    return line.split(maxsplit=1)[0] if line.strip() else ""
