"""The E-stage as pure functions: from one small labelled batch to a model that uses new sensors.

Everything takes Z = X^(s) W^(s) (n×c, the C-stage's scores), X^(a) (n×d_a, the new sensors) and
labels, is seeded, computes in float64, and returns a small frozen model. `SurvivorColumns`
(X^(s) and the C-stage's Gram matrix) let the batch's labels teach the survivors' weights, too:

>>> import numpy as np
>>> from gateway.estage import SurvivorColumns, fit_best, column_weights
>>> rng = np.random.default_rng(1)
>>> y = rng.integers(0, 3, 60)
>>> Xs, W_s = np.eye(3)[y] + rng.normal(size=(60, 3)), np.eye(3)
>>> Xa = np.eye(3)[y] + 0.3 * rng.normal(size=(60, 3))
>>> known = SurvivorColumns.of(Xs, gram=40.0 * np.eye(3), rho=1.0)
>>> best = fit_best(Xs @ W_s, Xa, y, classes=3, survivors=known, seed=0)
>>> small = column_weights(best.model, W_s)            # what a node needs: one matrix
>>> small.matrix().shape
(7, 3)
"""

from gateway.estage.batch import Batch, BatchError, SurvivorColumns
from gateway.estage.kernel.exact import Kernel, KernelModel, KernelOpid, fit_kernel_opid
from gateway.estage.kernel.landmark import COMPACT, LandmarkOpid
from gateway.estage.mixture import Mixture
from gateway.estage.models import LinearModel, Model, z_alone
from gateway.estage.opid import Opid, fit_opid
from gateway.estage.opide import Opide, fit_opide
from gateway.estage.selection import ALL, LINEAR, BestModel, Row, fit_best, hits_on
from gateway.estage.to_matrix import ColumnWeights, Rounded, column_weights, rounded
from gateway.estage.update import Update, fit_update

__all__ = [
    "ALL",
    "COMPACT",
    "LINEAR",
    "Batch",
    "BatchError",
    "BestModel",
    "ColumnWeights",
    "Kernel",
    "KernelModel",
    "KernelOpid",
    "LandmarkOpid",
    "LinearModel",
    "Mixture",
    "Model",
    "Opid",
    "Opide",
    "Rounded",
    "Row",
    "SurvivorColumns",
    "Update",
    "column_weights",
    "fit_best",
    "fit_kernel_opid",
    "fit_opid",
    "fit_opide",
    "fit_update",
    "hits_on",
    "rounded",
    "z_alone",
]
