"""The witness: it sees everything, and speaks up when a promise is broken.

| promise | who checks it, and when |
|---|---|
| no reading twice, none skipped, none altered | `Chronicle.committed`: every record, once durable |
| no acknowledged reading lost | `Chronicle.recovered`: at every start of a node |
| every state a prefix of what was acknowledged | the same, and again at the end |
| no unsigned weights, the floor never drops | `Chronicle.appended` and `committed`: every order |
| a version is used once | `Witness.ordered`: all that the gateway publishes |
| a number is used once | `SentBy.numbered`: all that a sensor sends |
| every reading arrives | `Witness.close`: after the faults have stopped |

It knows what was sent, heard and committed from the parts themselves, as they run, and keeps it
where no simulated disk can lose it: what could still go wrong with a reading is kept, and of all
others what it takes to recognise them.
"""

from __future__ import annotations

from collections.abc import Iterable

from nacl.signing import VerifyKey

from edge_opid.config.node import NodeConfig
from edge_opid.wire import Desired, decode, open_sealed
from firmware_sim.chaos.node_checks import Chronicle
from firmware_sim.chaos.promises import BrokenPromise, Digest, SentBy


class Witness:
    """Everything that was sent, signed and committed in one simulation."""

    def __init__(self, key: VerifyKey) -> None:
        self._key = key
        self.digest = Digest()
        self.nodes: dict[str, Chronicle] = {}
        self.sources: dict[str, dict[str, SentBy]] = {}
        self.signed: dict[str, dict[int, bytes]] = {}

    def meet(self, config: NodeConfig, sources: Iterable[str]) -> None:
        """A node, and the scripts that send to it."""
        self.sources[config.node] = {name: SentBy(name) for name in sources}
        self.signed[config.node] = {}
        mine = self.sources[config.node], self.signed[config.node]
        self.nodes[config.node] = Chronicle(config, *mine, self.digest)

    def ordered(self, node: str, payload: bytes) -> None:
        """The gateway publishes an order, for the first time or again."""
        document = open_sealed(payload, [self._key])
        version = decode(document, Desired).version
        known = self.signed[node].get(version)
        if known is None:
            self.signed[node][version] = document
            self.digest.add("order", node, document)
        elif known != document:
            what = f"order {version} for {node} has been given with two contents"
            raise BrokenPromise("version used twice", what)

    def close(self) -> None:
        """Nobody is on the way any more: what was taken must have arrived."""
        for name, sources in self.sources.items():
            for source, sent in sources.items():
                missing = [n for n in sent.taken.beyond(sent.arrived) if n not in sent.lost]
                if missing:
                    what = f"{len(missing)} of {source}, from {tuple(missing[0])} on, never came"
                    raise BrokenPromise("reading lost", f"{name}: {what}")
