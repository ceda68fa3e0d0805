"""A graph as the bytes of a `.tflite` file, written with `flatbuffers` and nothing of TensorFlow.

A flatbuffer is a tree of tables whose fields are numbered. The numbers below are those of TFLite's
public schema (version 3), which only ever grows: a field keeps its number for good. Of some
hundred tables ten are needed. Children are written before their parents, hence inside out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

import flatbuffers  # type: ignore[import-untyped]
import numpy as np

from gateway.tflite.graph import Graph, Op, Step, Tensor, place

SCHEMA_VERSION = 3
IDENTIFIER = b"TFL3"
ALIGNMENT = 16  # of an array's bytes in the file: runtimes read them where they lie
FLOAT32, INT8 = 0, 9  # TensorType


class ModelTable(IntEnum):
    """Fields of the root."""

    VERSION, OPERATOR_CODES, SUBGRAPHS, DESCRIPTION, BUFFERS = range(5)


class OperatorCode(IntEnum):
    """Which operator, in which version. The old field holds codes up to 127, and is still read."""

    OLD_CODE, _, VERSION, CODE = range(4)


class SubGraph(IntEnum):
    """One graph of a model; there is one."""

    TENSORS, INPUTS, OUTPUTS, OPERATORS = range(4)


class TensorField(IntEnum):
    """A tensor: its bytes are in the buffer of this number."""

    SHAPE, TYPE, BUFFER, NAME, QUANTIZATION = range(5)


class OperatorTable(IntEnum):
    """A step; `OPTIONS` is a table of the kind that `OPTIONS_TYPE` says."""

    OPCODE, INPUTS, OUTPUTS, OPTIONS_TYPE, OPTIONS = range(5)


SCALE, ZERO_POINT = 2, 3  # QuantizationParameters
DATA = 0  # Buffer
AXIS = 0  # ConcatenationOptions
ASYMMETRIC_INPUTS = 3  # FullyConnectedOptions
OPTIONS_TYPES = {Op.FULLY_CONNECTED: 8, Op.CONCATENATION: 10}  # BuiltinOptions


def to_bytes(graph: Graph) -> bytes:
    """The file: the same bytes for the same graph, always."""
    out = _Writer()
    tensors = graph.tensors
    # Buffer 0 is empty by convention: the tensors that are computed share it.
    stored = [tensor for tensor in tensors if tensor.data is not None]
    buffers = [out.table({}), *(out.table({DATA: out.bytes_of(each)}) for each in stored)]
    numbers = [place(stored, t) + 1 if t.data is not None else 0 for t in tensors]
    written = [out.tensor(t, number) for t, number in zip(tensors, numbers, strict=True)]
    codes = sorted({(step.op, step.version) for step in graph.steps})
    steps = [out.step(step, tensors, codes) for step in graph.steps]
    subgraph: dict[int, int] = {
        SubGraph.TENSORS: out.offsets(written),
        SubGraph.INPUTS: out.ints(place(tensors, each) for each in graph.inputs),
        SubGraph.OUTPUTS: out.ints([place(tensors, graph.output)]),
        SubGraph.OPERATORS: out.offsets(steps),
    }
    root: dict[int, int] = {
        ModelTable.SUBGRAPHS: out.offsets([out.table(subgraph)]),
        ModelTable.OPERATOR_CODES: out.offsets([out.operator_code(*each) for each in codes]),
        ModelTable.DESCRIPTION: out.text(graph.description),
        ModelTable.BUFFERS: out.offsets(buffers),
    }
    return out.finished(out.table(root, uint32={ModelTable.VERSION: SCHEMA_VERSION}))


class _Writer:
    """A builder in the few words needed here. Every method returns where its part begins."""

    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(4096)

    def finished(self, root: int) -> bytes:
        self._builder.Finish(root, file_identifier=IDENTIFIER)
        return bytes(self._builder.Output())

    # -- the schema's tables -------------------------------------------------------------------

    def tensor(self, tensor: Tensor, buffer: int) -> int:
        fields: dict[int, int] = {
            TensorField.SHAPE: self.ints(tensor.shape),
            TensorField.NAME: self.text(tensor.name),
        }
        if tensor.scale is not None:
            quantised = {SCALE: self._vector(4, "Float32", [tensor.scale])}
            quantised[ZERO_POINT] = self._vector(8, "Int64", [0])
            fields[TensorField.QUANTIZATION] = self.table(quantised)
        kind = FLOAT32 if tensor.scale is None else INT8
        return self.table(
            fields, uint32={TensorField.BUFFER: buffer}, int8={TensorField.TYPE: kind}
        )

    def step(self, step: Step, tensors: Sequence[Tensor], codes: Sequence[tuple[Op, int]]) -> int:
        options = (
            self.table({}, int32={AXIS: 1})
            if step.op is Op.CONCATENATION
            else self.table({}, int8={ASYMMETRIC_INPUTS: int(step.int8)})
        )
        fields: dict[int, int] = {
            OperatorTable.INPUTS: self.ints(place(tensors, each) for each in step.inputs),
            OperatorTable.OUTPUTS: self.ints([place(tensors, step.output)]),
            OperatorTable.OPTIONS: options,
        }
        return self.table(
            fields,
            uint32={OperatorTable.OPCODE: codes.index((step.op, step.version))},
            int8={OperatorTable.OPTIONS_TYPE: OPTIONS_TYPES[step.op]},
        )

    def operator_code(self, op: Op, version: int) -> int:
        return self.table(
            {},
            int32={OperatorCode.VERSION: version, OperatorCode.CODE: op},
            int8={OperatorCode.OLD_CODE: op},
        )

    # -- what tables are made of ---------------------------------------------------------------

    def table(
        self,
        offsets: Mapping[int, int],
        *,
        int32: Mapping[int, int] | None = None,
        uint32: Mapping[int, int] | None = None,
        int8: Mapping[int, int] | None = None,
    ) -> int:
        """A table with these fields, by number; a field that is 0 is left out, as its default."""
        kinds = {"UOffsetTRelative": offsets, "Int32": int32, "Uint32": uint32, "Int8": int8}
        count = 1 + max((slot for fields in kinds.values() for slot in fields or ()), default=-1)
        self._builder.StartObject(count)
        for kind, fields in kinds.items():
            for slot, value in (fields or {}).items():
                getattr(self._builder, f"Prepend{kind}Slot")(int(slot), int(value), 0)
        return int(self._builder.EndObject())

    def text(self, text: str) -> int:
        return int(self._builder.CreateString(text))

    def ints(self, values: Iterable[int]) -> int:
        return self._vector(4, "Int32", list(values))

    def offsets(self, values: Sequence[int]) -> int:
        return self._vector(4, "UOffsetTRelative", values)

    def bytes_of(self, tensor: Tensor) -> int:
        data = (
            np.ascontiguousarray(tensor.data)
            .astype(np.asarray(tensor.data).dtype.newbyteorder("<"))
            .tobytes()
        )
        self._builder.StartVector(1, len(data), ALIGNMENT)
        self._builder.head -= len(data)
        self._builder.Bytes[self._builder.head : self._builder.head + len(data)] = data
        return int(self._builder.EndVector())

    def _vector(self, size: int, kind: str, values: Sequence[float]) -> int:
        self._builder.StartVector(size, len(values), size)
        for value in reversed(values):  # a builder grows downwards
            getattr(self._builder, f"Prepend{kind}")(value)
        return int(self._builder.EndVector())
