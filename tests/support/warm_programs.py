"""Our programs without the second that Python takes to load each of them.

A page has dozens of commands. `WarmPrograms(folder, root)` starts one process that has loaded them
all; what it puts into `folder` under their names hands arguments, working folder and three files to
that process, which forks, obeys and tells the exit code. `run` and `web` are served for as long
as somebody wants, and get a process of their own, as in life. `root` stands for `/` where a program
looks for its configuration, and where `opid-node init` makes things.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
MODULES = {"opid-node": "edge_opid", "opid-gateway": "gateway", "opid-sim": "firmware_sim"}
FOR_LONG = ("run", "web")
ASK = """\
#!{python} -SE
import json, os, socket, sys
if {module!r} and sys.argv[1:2] and sys.argv[1] in {for_long!r}:
    os.execv({python!r}, [{python!r}, "-m", {module!r}, *sys.argv[1:]])
asking = socket.socket(socket.AF_UNIX)
asking.connect({address!r})
said = json.dumps([{name!r}, sys.argv[1:], os.getcwd(), dict(os.environ)])
socket.send_fds(asking, [said.encode() + b"\\n"], [0, 1, 2])
code = asking.recv(1)
sys.exit(code[0] if code else 1)
"""


class WarmPrograms:
    """`with WarmPrograms(folder, root):` while the commands of a page are run."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._address = str(folder / "programs.socket")
        command = [sys.executable, "-m", "support.warm_programs", self._address, str(root)]
        path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        for name in (*MODULES, "mosquitto_pub"):
            self._write(folder / name)

    def _write(self, file: Path) -> None:
        text = ASK.format(
            python=sys.executable, module=MODULES.get(file.name), for_long=FOR_LONG,
            address=self._address, name=file.name,
        )  # fmt: skip
        file.write_text(text)
        file.chmod(0o755)

    def __enter__(self) -> WarmPrograms:
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate(timeout=30)  # its input ends, and so does it


def serve(address: str, root: str) -> None:
    """Obey whoever asks, until nobody holds our input any more."""
    programs = loaded(Path(root))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(16)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            asking, _ = listener.accept()
            if os.fork() == 0:
                obey(asking, programs)
            asking.close()


def loaded(root: Path) -> dict[str, Callable[[list[str]], int]]:
    """Every program by its name, looking for its files below `root`."""
    main = {name: import_module(f"{each}.__main__").main for name, each in MODULES.items()}

    def opid_node(words: list[str]) -> int:
        if words[:1] != ["init"]:
            return main["opid-node"](words)
        below = ["--root", str(root), "--port", os.environ["PORT"], "--seconds", "3"]
        code = main["opid-node"]([*words, *below])
        file = root / "etc/opid-node/node.toml"
        file.write_text(re.sub(r'"(/(?:var|run)/)', rf'"{root}\1', file.read_text()))
        return code

    import_module("edge_opid.cli.parser").CONFIG = root / "etc/opid-node/node.toml"
    import_module("gateway.cli.parser").CONFIG = root / "etc/opid-gateway/gateway.toml"
    return {**main, "opid-node": opid_node, "mosquitto_pub": publish}


def obey(asking: socket.socket, programs: dict[str, Callable[[list[str]], int]]) -> None:
    """In a child: what was asked, with the asker's folder, variables and files; never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        said, files, _, _ = socket.recv_fds(asking, 1 << 20, 3)
        while not said.endswith(b"\n"):
            said += asking.recv(1 << 20)
        name, words, folder, variables = json.loads(said)
        for place, file in enumerate(files):
            os.dup2(file, place)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        time.tzset()
        sys.argv = [name, *words]
        code = programs[name](words) or 0
    except SystemExit as ended:  # argparse has said why
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(BrokenPipeError):  # whoever asked was ended
            asking.send(bytes([code]))
        os._exit(code)


def publish(words: list[str]) -> int:
    """What `mosquitto_pub -t TOPIC -m MESSAGE [-r]` does, for a machine that lacks it."""
    import paho.mqtt.client as paho  # noqa: PLC0415

    retain = "-r" in words
    topic, message = (words[words.index(option) + 1] for option in ("-t", "-m"))
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", int(os.environ["PORT"]))
    client.loop_start()
    client.publish(topic, message, qos=1, retain=retain).wait_for_publish(30)
    client.disconnect()
    client.loop_stop()
    return 0 if len(words) == 4 + retain else 2  # or an option that is not understood


if __name__ == "__main__":
    serve(*sys.argv[1:])
