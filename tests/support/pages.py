r"""A page of the documentation as the script that its reader types.

Blocks are run from top to bottom, in one shell:

- `console`: what follows each prompt. If the page shows that a program refuses ("opid-gateway: …"),
  it must refuse.
- `sh`: as it stands. `python`: by the interpreter.
- any block with `title="FILE"` becomes that file; with `title="added to FILE"`, its end.
- `<!-- test … -->`, which no reader sees: what a reader does by hand, or has had for long.

>>> page = '''
... ```console
... $ opid-node check \
...     here.toml
... all is well
... $ opid-node stop
... opid-node: no such verb
... ```
... '''
>>> print(script_of(page))
echo '$ opid-node check     here.toml'
opid-node check     here.toml
echo '$ opid-node stop'
if opid-node stop; then false; fi
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from support.mosquitto import find_mosquitto, free_port
from support.warm_programs import WarmPrograms

ROOT = Path(__file__).resolve().parents[2]
SHELL = Path(__file__).with_name("page_shell.sh")
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<text>.*?)^(?P=indent)```$"
    r"|^ *<!-- test\n(?P<hidden>.*?)^ *-->$",
    re.M | re.S,
)
PROMPT = re.compile(r"^(?:\w+@\w+:~ )?\$ ")
REFUSAL = re.compile(r"opid-\w+: ")
ADDED = "added to "
ABSOLUTE = re.compile(r"(?<![\w./}-])/(?=(?:etc|var|opt|run|backup)\b)")
FOLDERS = ("etc/systemd/system", "run", "backup", "var/backups")  # that a machine has
TYPED_FOR_LONG_S = 540  # a machine may be very busy
ELSEWHERE = {
    r"make demo": "tests/test_sim_demo.py plays its scenario",
    r"python3 -m venv |.*\bpip install |source ": "tests/test_bare_install.py, make pi",
    r"sudo apt install ": "needs Debian's root: make pi",
    r"opid-sim run .*--(live|broker)": "real processes: tests/test_sim_demo.py",
    r"opid-sim (run|soak) ": "seconds each: tests/test_sim_scenarios.py, test_sim_safety.py",
    r"python -m firmware_sim.resets.run ": "two minutes of 200 nodes: make resets; 20 in make test",
}
"""Commands that no test types here, and who does instead."""


def script_of(page: str) -> str:
    """Everything that a reader of this page types, or writes into files."""
    return "\n".join(line for block in BLOCK.finditer(page) for line in _lines(block))


def _lines(block: re.Match[str]) -> list[str]:
    if block["hidden"]:
        return [block["hidden"].rstrip()]
    text = re.sub(rf"(?m)^{block['indent']}", "", block["text"])
    if block["title"]:
        added = block["title"].startswith(ADDED)
        file = block["title"].removeprefix(ADDED)
        return [f"cat {'>>' if added else '>'} {file} <<'END OF FILE'\n{text}END OF FILE"]
    if block["kind"] == "console":
        return [line for command in commands_of(text) for line in _command(*command)]
    if block["kind"] == "sh":
        return [text.rstrip()]
    if block["kind"] == "python":
        return [f"python - <<'END OF FILE'\n{text}END OF FILE"]
    return []  # something to look at


def commands_of(console: str) -> list[tuple[str, list[str]]]:
    """What is typed, each with the lines that answer."""
    found: list[tuple[str, list[str]]] = []
    for line in console.replace("\\\n", "").splitlines():
        if PROMPT.match(line):
            found.append((PROMPT.sub("", line), []))
        elif found:
            found[-1][1].append(line)
    return found


def _command(command: str, shown: Sequence[str]) -> list[str]:
    if any(re.match(known, command) for known in ELSEWHERE):
        return []
    refused = any(REFUSAL.match(line) for line in shown)
    code = command.partition(" #")[0].rstrip()
    return [
        f"echo {shlex.quote('$ ' + command)}",
        f"if {code}; then false; fi" if refused else command,
    ]


class World:
    """A folder that stands for a machine, a shell in it, and free ports for those of the pages."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "machine"
        self.port = free_port()
        self._instead = {
            "1883": str(self.port),
            **{named: str(free_port()) for named in ("1884", "8470")},
            "pi4.local": "127.0.0.1",
            "north.local": "127.0.0.1",
        }

    def run(self, pages: Sequence[str], instead: Mapping[str, str]) -> str:
        """Everything these pages say, in one shell; what it showed. A failing command ends it."""
        script = "\n".join(script_of((ROOT / page).read_text("utf-8")) for page in pages)
        for slow, fast in instead.items():
            assert slow in script, f"no page says {slow!r} any more"
            script = script.replace(slow, fast)
        for named, ours in self._instead.items():
            script = script.replace(named, ours)
        script = ABSOLUTE.sub(f"{self.root}/", script)
        return self._shell(f". {SHELL}\n{script}")

    def _shell(self, script: str) -> str:
        broker = Path(find_mosquitto()).parent
        for each in ("bin", "home", *(f"machine/{name}" for name in FOLDERS)):
            (self.folder / each).mkdir(parents=True, exist_ok=True)
        (self.folder / "home/edge-opid").symlink_to(ROOT)
        (self.folder / "script.sh").write_text(script)
        path = [self.folder / "bin", Path(sys.executable).parent, broker, os.environ["PATH"]]
        variables = {
            **os.environ, "PATH": os.pathsep.join(map(str, path)), "ROOT": str(self.root),
            "PORT": str(self.port), "SPARE": str(free_port()), "WEB": self._instead["8470"],
            "SUPPORT": str(SHELL.parent), "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        shown = self.folder / "shown"  # no pipe: whoever is left would keep it open
        with WarmPrograms(self.folder / "bin", self.root), shown.open("w") as screen:
            shell = subprocess.Popen(
                ["bash", str(self.folder / "script.sh")], cwd=self.folder / "home", env=variables,
                stdin=subprocess.DEVNULL, stdout=screen, stderr=screen, start_new_session=True,
            )  # fmt: skip
            try:
                code = shell.wait(TYPED_FOR_LONG_S)
            finally:
                end_group(shell.pid)
                shell.wait(30)
        said = shown.read_text("utf-8")
        assert code == 0, said[-4000:]
        return said


def end_group(group: int) -> None:
    """Whatever the shell has left running goes with it."""
    with suppress(ProcessLookupError):  # nobody was left
        os.killpg(group, signal.SIGTERM)
        for _ in range(50):
            time.sleep(0.1)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)
