r"""A page of the documentation as the script that its reader types.

Blocks are run from top to bottom, in one shell:

- `console`: what follows each prompt. If the page shows that a program refuses ("opid-gateway: …"
  at the end), it must refuse. If the page shows what a command prints, it must print that and
  nothing else (`Shown`).
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
echo '-- done'
echo '$ opid-node stop'
if opid-node stop; then false; fi
echo '-- done'
"""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from support.mosquitto import find_mosquitto
from support.warm_programs import WarmPrograms

ROOT = Path(__file__).resolve().parents[2]
SHELL = Path(__file__).with_name("page_shell.sh")
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<text>.*?)^(?P=indent)```$"
    r"|^ *<!-- test\n(?P<hidden>.*?)^ *-->$",
    re.M | re.S,
)
VARIES = "<!-- numbers vary -->\n"  # before a block whose numbers are those of one run
DONE = "-- done"
PROMPT = re.compile(r"^(?:\w+@\w+:~ )?\$ ")
REFUSAL = re.compile(r"opid-\w+: ")
ADDED = "added to "
ABSOLUTE = re.compile(r"(?<![\w./}-])/(?=(?:etc|var|opt|run|backup|usr/local)\b)")
# That a machine has.
FOLDERS = ("etc/systemd/system", "run", "backup", "var/backups", "usr/local/bin")
TYPED_FOR_LONG_S = 540  # a machine may be very busy
ELSEWHERE = {
    r"make demo": "tests/test_sim_demo.py plays its scenario",
    r"python3 -m venv |.*\bpip install |source ": "tests/test_bare_install.py, make pi",
    r"sudo apt install ": "needs Debian's root: make pi",
    r"opid-sim run .*--(live|broker)": "real processes: tests/test_sim_demo.py",
    r"opid-sim (run|soak) ": "seconds each: tests/test_sim_scenarios.py, test_sim_safety.py",
    r"opid-gateway sensor list .*--node": "during an overlap: tests/test_gateway_agreement.py",
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
    refused = bool(shown) and REFUSAL.match(shown[-1])  # it is the last thing that a program says
    code = command.partition(" #")[0].rstrip()
    return [
        f"echo {shlex.quote('$ ' + command)}",
        f"if {code}; then false; fi" if refused else command,
        f"echo {shlex.quote(DONE)}",
    ]


@dataclass(frozen=True)
class Shown:
    r"""What a page shows below a command.

    Every line counts. `…` stands for anything in a line, and for any lines where it is one. Dates
    and times may be any; so may numbers where `<!-- numbers vary -->` stands before the block.
    Columns may be wider or narrower.

    >>> shown = Shown("list", ("node   heard", "─────", "north  2026-11-16 05:13:54", "…"), False)
    >>> shown.pattern.fullmatch("node  heard\n────\nnorth 2027-01-01 10:00:00\n") is not None
    True
    >>> shown.pattern.fullmatch("node  heard\n────\nsouth 2027-01-01 10:00:00\n") is None
    True
    """

    command: str
    lines: tuple[str, ...]
    numbers_vary: bool

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches what the command may print."""
        return re.compile("".join(map(self._line, self.lines)))

    def _line(self, line: str) -> str:
        if line.strip() == "…":
            return r"(?:.*\n)*?"
        varying = ANYTHING if self.numbers_vary else ANYTHING[:-1]
        words = re.compile("|".join(shape for shape, _ in varying))
        found, after = "", 0
        for each in words.finditer(line.rstrip()):
            found += re.escape(line[after : each.start()])
            found += next(any_ for shape, any_ in varying if re.fullmatch(shape, each[0]))
            after = each.end()
        return found + re.escape(line.rstrip()[after:]) + r" *\n"


ANYTHING = (
    ("…", ".*"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d", r"[\d-]*\s?\d\d:\d\d:\d\d"),
    ("─+", "─+"),
    (" +", " +"),
    (r"\d+(?:[.,]\d+)*", r"\d+(?:[.,]\d+)*"),
)
"""What may differ, and what may stand in its place; the last only where numbers vary."""


def shown_of(page: str) -> list[Shown]:
    """For each command that is typed, what the page shows of its output: perhaps nothing."""
    return [each for each in _shown(page) if _command(each.command, each.lines)]


def _shown(page: str) -> Iterator[Shown]:
    for block in BLOCK.finditer(page):
        if block["kind"] == "console" and not block["title"]:
            vary = page.endswith(VARIES, 0, block.start())
            text = re.sub(rf"(?m)^{block['indent']}", "", block["text"])
            for command, lines in commands_of(text):
                yield Shown(command, tuple(lines), vary)


def shown_below(page: str, command: str) -> Shown:
    """What this page shows below the one command that begins so, whoever types it."""
    text = (ROOT / page).read_text("utf-8")
    (found,) = (each for each in _shown(text) if each.command.startswith(command))
    return found


def printed_of(screen: str) -> list[str]:
    """What each command that was typed has printed."""
    return re.findall(rf"(?ms)^\$ [^\n]*\n(.*?)^{DONE}\n", screen)


def lasting_port() -> int:
    """A port that is still free when a page comes to it, a minute later.

    One that the system hands out may be somebody's connection by then, and for a minute after its
    end no listener may have it. These it does not hand out.
    """
    for _ in range(100):
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("a hundred ports are all in use")


def zone_of_an_evening() -> str:
    """Where it is between eight and nine: this afternoon is over, and midnight is far away.

    Hours that a page names would else be another day's from one command to the next.
    """
    return f"LOCAL-{(20 - time.gmtime().tm_hour) % 24}"


class World:
    """A folder that stands for a machine, a shell in it, and free ports for those of the pages."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "machine"
        self.port = lasting_port()
        self._instead = {
            "1883": str(self.port),
            **{named: str(lasting_port()) for named in ("1884", "8470")},
            "pi4.local": "127.0.0.1",
            "north.local": "127.0.0.1",
            "'pi4'": repr(socket.gethostname()),
        }

    def run(self, pages: Sequence[str], instead: Mapping[str, str]) -> str:
        """Everything these pages say, in one shell; what it showed. A failing command ends it."""
        texts = [(ROOT / page).read_text("utf-8") for page in pages]
        script = "\n".join(map(script_of, texts))
        for slow, fast in instead.items():
            assert slow in script, f"no page says {slow!r} any more"
            script = script.replace(slow, fast)
        screen = self._shell(f". {SHELL}\n{ABSOLUTE.sub(f'{self.root}/', self._here(script))}")
        self._compare([each for text in texts for each in shown_of(text)], printed_of(screen))
        return screen

    def _here(self, text: str) -> str:
        """The same with the ports and machines that there are here."""
        for named, ours in self._instead.items():
            text = text.replace(named, ours)
        return text

    def _compare(self, shown: Sequence[Shown], printed: Sequence[str]) -> None:
        wrong = []
        for page, screen in zip(shown, printed, strict=True):
            here = replace(page, lines=tuple(map(self._here, page.lines)))
            said = screen.replace(str(self.root), "")
            if page.lines and not here.pattern.fullmatch(said):
                told = "\n".join(page.lines)
                wrong.append(f"$ {page.command}\nis shown to print\n{told}\nand prints\n{said}")
        assert not wrong, "\n".join(wrong)

    def _shell(self, script: str) -> str:
        broker = Path(find_mosquitto()).parent
        for each in ("bin", "home", *(f"machine/{name}" for name in FOLDERS)):
            (self.folder / each).mkdir(parents=True, exist_ok=True)
        (self.folder / "home/edge-opid").symlink_to(ROOT)
        (self.folder / "script.sh").write_text(script)
        path = [self.folder / "bin", Path(sys.executable).parent, broker, os.environ["PATH"]]
        variables = {
            **os.environ, "PATH": os.pathsep.join(map(str, path)), "ROOT": str(self.root),
            "PORT": str(self.port), "SPARE": str(lasting_port()), "WEB": self._instead["8470"],
            "SUPPORT": str(SHELL.parent), "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1",
            "TZ": zone_of_an_evening(),
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
