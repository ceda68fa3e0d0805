"""Predictors in `.tflite` files, through `tflite-runtime` or its successor `ai-edge-litert`.

A file says what it is for in the names of its tensors, each name a list with one item a line. An
input of n columns has n + 1 lines: a word (`survivors`, `new`, or `columns` where there is but one
input), and the n names. The output has `scores` and the names of the classes. Everything that goes
in and out is float32, one reading at a time.

**The file is trusted as the configuration is**: an operator put it there. The runtimes are C++ and
follow the offsets in a file wherever they lead (of our own files cut short, tflite-runtime 2.14
dies of more than half). So a file ends in a seal, its checksum, and is looked at before a runtime
sees it: enough against a wrong, damaged or half-copied file, not against a forged one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import shown
from edge_opid.models.matrix import ModelError

SURVIVORS, NEW, COLUMNS, SCORES = "survivors", "new", "columns", "scores"
SEPARATOR = "\n"
RUNTIMES = ("ai_edge_litert", "tflite_runtime")
"""The successor first, where somebody has installed both."""
FILE_BYTES_MAX = 1 << 20  # 160 columns, 16 classes and all their names take 35 kB
IDENTIFIER = b"TFL3"
SEAL = b"OPID"
"""The last eight bytes are this and a CRC-32 of all before. TFLite ignores what follows a model."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Which of the columns go to which input."""

    index: int
    """The input's number in the interpreter."""
    places: NDArray[np.intp]
    """Where in x its columns stand."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TfliteModel:
    """A `Predictor` in a TFLite runtime: 4–6 µs a reading, where NumPy takes 1–2.

    x is in the order of `columns`, and scores in that of `classes`: those of the file, until
    `arranged` makes them a layout's.
    """

    columns: tuple[str, ...]
    classes: tuple[str, ...]
    runtime: str
    _interpreter: Any = field(repr=False)
    _feeds: tuple[Feed, ...] = field(repr=False)
    _output: int = field(repr=False)
    _order: NDArray[np.intp] = field(repr=False)
    """Where the interpreter keeps the score of each class."""
    version: int = 0

    def scores(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """One score for each class."""
        if len(x) != len(self.columns):
            raise ModelError("width", f"x must have {len(self.columns)} columns, got {len(x)}")
        try:
            for feed in self._feeds:
                self._interpreter.set_tensor(feed.index, x[None, feed.places])
            self._interpreter.invoke()
            return np.asarray(self._interpreter.get_tensor(self._output)[0, self._order])
        except (ValueError, RuntimeError) as error:
            raise ModelError("runtime", f"{self.runtime} failed: {error}") from error

    def arranged(self, columns: Sequence[str], classes: Sequence[str]) -> TfliteModel:
        """The same for a layout whose columns, or classes, have another order."""
        moved = _places(columns, self.columns, "columns")
        order = _places(self.classes, classes, "classes")
        feeds = tuple(Feed(feed.index, moved[feed.places]) for feed in self._feeds)
        return replace(
            self,
            columns=tuple(columns),
            classes=tuple(classes),
            _feeds=feeds,
            _order=self._order[order],
        )


def load_tflite(source: Path | bytes) -> TfliteModel:
    """The model in a file, or in the bytes of one; a `ModelError` says what is wrong with it."""
    name = source.name if isinstance(source, Path) else "the file"
    data = checked(_read(source) if isinstance(source, Path) else source, name)
    runtime, interpreter, inputs, outputs = _loaded(data, name)
    if not 1 <= len(inputs) <= 2 or len(outputs) != 1:
        got = f"{len(inputs)} and {len(outputs)}"
        raise ModelError("shape", f"{name} must have 1 or 2 inputs and 1 output, got {got}")
    feeds: list[Feed] = []
    columns: list[str] = []
    for detail in inputs:
        names = _names(detail, (SURVIVORS, NEW, COLUMNS), name)
        feeds.append(Feed(detail["index"], np.arange(len(columns), len(columns) + len(names))))
        columns += names
    classes = tuple(_names(outputs[0], (SCORES,), name))
    index, order = outputs[0]["index"], np.arange(len(classes))
    return TfliteModel(
        columns=tuple(columns),
        classes=classes,
        runtime=runtime,
        _interpreter=interpreter,
        _feeds=tuple(feeds),
        _output=index,
        _order=order,
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ModelError("file", f"{path.name} cannot be read: {error.strerror}") from error


def sealed(data: bytes) -> bytes:
    r"""A model with its seal: the last step of whoever writes a file that a node is to serve.

    >>> sealed(b"\x1c\x00\x00\x00TFL3")[8:]
    b'OPID\x95\xf3R\x9d'
    """
    return data + SEAL + zlib.crc32(data).to_bytes(4, "little")


def checked(data: bytes, name: str) -> bytes:
    """The bytes, if they may be shown to a runtime."""
    if len(data) > FILE_BYTES_MAX:
        at_most = f"must have at most {FILE_BYTES_MAX:,} bytes"
        raise ModelError("size", f"{name} {at_most}, and has more: it is not a model of this kind")
    if data[4:8] != IDENTIFIER:
        got = f"{shown(data[4:8])}: it is not a TFLite model"
        raise ModelError("format", f"{name} must have {IDENTIFIER!r} at byte 4, got {got}")
    if data[-8:-4] != SEAL:
        how = "copy it again if it was cut short, or pass it through edge_opid.models.tflite.sealed"
        raise ModelError("seal", f"{name} must end in {SEAL!r} and its checksum: {how}")
    if sealed(data[:-8]) != data:
        says, has = int.from_bytes(data[-4:], "little"), zlib.crc32(data[:-8])
        differs = f"must have the checksum {says:08x} that it says, got {has:08x}"
        raise ModelError("seal", f"{name} {differs}: it is damaged, copy it again")
    return data


def _loaded(data: bytes, name: str) -> tuple[str, Any, list[Any], list[Any]]:
    """A runtime, its interpreter of the file, and what this says of inputs and outputs.

    One thread, and no delegates: both only pay for models a thousand times as large.
    """
    runtime, module = _runtime()
    plain = module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        interpreter = module.Interpreter(
            model_content=data, num_threads=1, experimental_op_resolver_type=plain
        )
        interpreter.allocate_tensors()
        details = interpreter.get_input_details(), interpreter.get_output_details()
    except (ValueError, RuntimeError) as error:
        raise ModelError("format", f"{name} is not accepted by {runtime}: {error}") from error
    return runtime, interpreter, *details


def _runtime() -> tuple[str, Any]:
    """Whichever is installed; imported only now, since it costs a node some megabytes."""
    for name in RUNTIMES:
        if find_spec(name) is None:
            continue
        try:
            return name.replace("_", "-"), import_module(f"{name}.interpreter")
        except (ImportError, AttributeError) as error:  # the latter under a NumPy it cannot use
            raise ModelError("runtime", f"{name} is installed but broken: {error}") from error
    raise ModelError(
        "runtime",
        "no TFLite runtime is installed: pip install 'edge-opid[litert]', or 'edge-opid[tflite]' "
        "for Python 3.11 and 32-bit Raspberry Pi OS",
    )


def _names(detail: Any, kinds: Sequence[str], name: str) -> list[str]:
    """The columns or classes that a tensor's name lists, one for each of its numbers."""
    kind, *names = str(detail["name"]).split(SEPARATOR)
    shape = tuple(int(size) for size in detail["shape"])
    if kind not in kinds or shape != (1, len(names)) or detail["dtype"] is not np.float32:
        got = f"{shown(detail['name'])} of {shape}, {detail['dtype'].__name__}"
        wanted = f"{' or '.join(kinds)} and n names, of (1, n), float32"
        raise ModelError("names", f"a tensor of {name} must be {wanted}, got {got}")
    return names


def _places(have: Sequence[str], want: Sequence[str], what: str) -> NDArray[np.intp]:
    """Where in `have` each of `want` stands; both must be the same names."""
    if len(have) != len(want) or set(have) != set(want):
        strange = sorted(set(have) ^ set(want))
        raise ModelError(what, f"its {what} are others: {shown(', '.join(strange))}")
    return np.array([list(have).index(each) for each in want], np.intp)
