from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_opid.native.packing import Floats

INTERFACE: int

class Held:
    """A capsule: arrays that were checked, and stay where they are while it lives."""

def hold_ridge(
    columns: Floats,
    v: NDArray[np.float64],
    B: Floats,
    work: Floats,
    vanishing: int,
    surviving: int,
    lam: float,
    decay: float,
    ceiling: float,
    limit: float,
    /,
) -> Held: ...
def learn(ridge: Held, x: Floats, label: int, scores: NDArray[np.float64] | None, /) -> int: ...
def predict(ridge: Held, x: Floats, survivors: bool, scores: NDArray[np.float64], /) -> int: ...
def hold_gram(packed: Floats, B: Floats, work: Floats, decay: float, limit: float, /) -> Held: ...
def learn_gram(gram: Held, x: Floats, label: int, /) -> int: ...
def observe(gram: Held, x: Floats, /) -> int: ...
def hold_logistic(
    weights: NDArray[np.float64],
    squares: NDArray[np.float64],
    places: NDArray[np.intc],
    knots: NDArray[np.float64],
    values: NDArray[np.float64],
    step: float,
    /,
) -> Held: ...
def guess(
    long: Held,
    lately: Held,
    logistic: Held,
    errors: array[float],
    bridge: NDArray[np.float32] | None,
    x: Floats,
    scores: NDArray[np.float32],
    room: NDArray[np.float64],
    ordered: bool,
    /,
) -> tuple[int, ...] | None: ...
def learn_all(
    long: Held,
    lately: Held,
    logistic: Held,
    errors: array[float],
    bridge: NDArray[np.float32] | None,
    x: Floats,
    label: int,
    said: NDArray[np.float64],
    record: bool,
    /,
) -> int: ...
def hold_layout(
    names: tuple[str, ...],
    references: NDArray[np.float64],
    scales: NDArray[np.float64],
    z: NDArray[np.float64],
    owners: NDArray[np.intc],
    columns: NDArray[np.intc],
    slopes: NDArray[np.float64],
    offsets: NDArray[np.float64],
    floors: NDArray[np.float64],
    gate: float,
    strangers: bool,
    /,
) -> Held: ...
def encode(layout: Held, values: object, x: NDArray[np.float32], /) -> tuple[int, ...] | None: ...
def time_answer(
    state: array[float],
    evidence: array[float],
    predictor: int,
    scores: array[float] | NDArray[np.floating[Any]],
    time_ms: int,
    /,
) -> list[float]: ...
def time_go_on(state: array[float], evidence: array[float], looked: bool, /) -> None: ...
def time_learn(
    state: array[float], evidence: array[float], predictor: int, truth: int, /
) -> None: ...
