import numpy as np
from numpy.typing import NDArray

from edge_opid.native.packing import Floats

def learn(
    columns: Floats,
    v: NDArray[np.float64],
    B: Floats,
    work: Floats,
    vanishing: int,
    surviving: int,
    x: Floats,
    label: int,
    lam: float,
    decay: float,
    ceiling: float,
    limit: float,
    scores: NDArray[np.float64] | None,
    /,
) -> int: ...
def predict(
    columns: Floats,
    v: NDArray[np.float64],
    B: Floats,
    work: Floats,
    vanishing: int,
    surviving: int,
    x: Floats,
    survivors: bool,
    limit: float,
    scores: NDArray[np.float64],
    /,
) -> int: ...
def learn_gram(
    packed: Floats,
    B: Floats,
    width: int,
    x: Floats,
    label: int,
    decay: float,
    limit: float,
    /,
) -> int: ...
