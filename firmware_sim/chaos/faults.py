"""What goes wrong in a run: a list that the seed makes first, and that can be read, cut and typed.

A fault says when, what, to whom, for how long, and has one number more that decides its details.
Each is written `at:kind:target:for:detail`, for example `4200:power:n1:900:3`. What one fault does
does not depend on which others there are, so that a failing list can be made shorter.

| kind | target | what happens |
|---|---|---|
| `kill` | node, source, gateway | `kill -9`, a node or gateway in the middle of something |
| `power` | node, source | a power cut: what was not synced is lost, torn or spoilt |
| `stop` | node | stopped in order, and started again |
| `jump` | node, source, gateway | killed, and its wall clock is set, an hour or a day off |
| `epoch` | node, source, gateway | killed, and started with its clock in 1970 or 2040, before NTP |
| `card` | source | its card is replaced by an empty one, and it starts before NTP |
| `eio` | source | its card fails at whatever is asked of it, for a while |
| `full` | node | its disk takes nothing for a while |
| `gone` | node | its state folder is taken away underneath, and put back later |
| `reset` | anyone | the connection breaks; what is on its way is lost |
| `part` | anyone | no way to the broker for a while |
| `slow` | anyone | packets take seconds |
| `noack` | anyone | the broker takes what it is sent, and its PUBACKs are lost |
| `poison` | anyone | a PUBLISH that brokers forward and clients choke on; some are retained |
| `restart` | broker | down for a while, with its memory |
| `amnesia` | broker | down for a while, and it has forgotten everything |
| `older` | broker | down for a while, and it believes that it is some seconds ago |
| `again` | broker | it repeats messages of the past |
| `babble` | broker | it says things that mean nothing |
| `stale` | node | the broker retains an older order of this node instead of the last |
| `forge` | node | the broker retains an order that the gateway never gave |
| `thread` | node, gateway | an error in its network's thread, or the end of the thread |
| `liar` | node | whoever has its password says in its name what turns a group round |
| `retain` | node | a foreign device of it retains what it says, and the connection breaks again |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

BROKER = "broker"
NODES = (
    *("kill", "power", "power", "power", "stop", "jump", "full", "stale", "forge"),
    *("epoch", "gone", "liar", "thread"),
)
DEVICES = ("retain",)  # of nodes that hear a foreign device
CARDS = ("card", "eio")  # of scripts alone
SOURCES = ("kill", "power", "jump", "epoch", *CARDS)
GATEWAY = ("kill", "kill", "jump", "epoch", "thread")
ANYONE = ("reset", "part", "slow", "noack", "poison", "poison")
BROKERS = ("restart", "amnesia", "older", "again", "again", "babble")
KINDS = frozenset((*NODES, *DEVICES, *SOURCES, *GATEWAY, *ANYONE, *BROKERS))


@dataclass(frozen=True, order=True, slots=True)
class Fault:
    """One thing that goes wrong.

    >>> Fault.parse("4200:power:n1:900:3")
    Fault(at_ms=4200, kind='power', target='n1', for_ms=900, detail=3)
    >>> str(Fault(4200, "power", "n1", 900, 3))
    '4200:power:n1:900:3'
    >>> Fault.parse("4200:flood:n1:900:3")
    Traceback (most recent call last):
    ValueError: fault '4200:flood:n1:900:3' must be at:kind:target:for:detail, with a known kind
    """

    at_ms: int
    kind: str
    target: str
    for_ms: int
    detail: int

    def __str__(self) -> str:
        return f"{self.at_ms}:{self.kind}:{self.target}:{self.for_ms}:{self.detail}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The fault that `str` wrote down."""
        try:
            at_ms, kind, target, for_ms, detail = text.split(":")
            fault = cls(int(at_ms), kind, target, int(for_ms), int(detail))
        except ValueError:
            fault = None
        if fault is None or fault.kind not in KINDS:
            wanted = "must be at:kind:target:for:detail, with a known kind"
            raise ValueError(f"fault {text!r} {wanted}")
        return fault


@dataclass(frozen=True, slots=True)
class Targets:
    """Everybody to whom something can happen."""

    nodes: tuple[str, ...]
    sources: tuple[str, ...]
    gateway: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """Nodes that hear a foreign device."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody with a connection."""
        return (*self.nodes, *self.sources, *self.gateway)


def faults_for(chance: Random, targets: Targets, until_ms: int) -> tuple[Fault, ...]:
    """Between three and fifteen faults, the nodes' disks foremost."""
    count = chance.randint(3, 15)
    return tuple(sorted(_fault(chance, targets, until_ms) for _ in range(count)))


def _fault(chance: Random, targets: Targets, until_ms: int) -> Fault:
    weights = (9, 4, 3, 6, 4, 2 if targets.devices else 0)
    who = chance.choices(("node", "source", "gateway", "anyone", "broker", "device"), weights)[0]
    kinds, names = {
        "device": (DEVICES, targets.devices),
        "node": (NODES, targets.nodes),
        "source": (SOURCES, targets.sources),
        "gateway": (GATEWAY, targets.gateway or targets.nodes),
        "anyone": (ANYONE, targets.clients),
        "broker": (BROKERS, (BROKER,)),
    }[who]
    at_ms = chance.randint(200, until_ms)
    for_ms = min(chance.choice((50, 400, 1_500, 4_000)), until_ms - at_ms)
    return Fault(at_ms, chance.choice(kinds), chance.choice(names), for_ms, chance.randrange(1_000))


def listed(faults: Iterable[Fault]) -> str:
    """One line for the command line."""
    return ",".join(map(str, faults))


def parsed(text: str) -> tuple[Fault, ...]:
    """What `listed` wrote down.

    >>> parsed("") == ()
    True
    """
    return tuple(sorted(Fault.parse(each) for each in text.split(",") if each))
