"""A second way to a kernel on landmarks: the exact model shrunk, to compare the product's with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gateway.estage import Batch, KernelModel
from gateway.estage.kernel.exact import kernel_pair
from gateway.estage.kernel.landmark import feature_root, landmarks
from gateway.estage.opid import penalties


def shrunk(model: KernelModel, batch: Batch, rows, count: int) -> KernelModel:
    """Eq. 14 with V^(s) and V̄ confined to the landmarks' span, at the model's γ and w₁."""
    c = batch.classes
    points = (batch.columns[rows] - model.centre) / model.scale
    support = points[landmarks(model.kernel(points, points), count)]
    p1, p2 = penalties("balanced", c, batch.new)
    w1, gamma = model.details["w1"], model.details["gamma"]
    K_s, K_b = kernel_pair(model.kernel, support, c)
    blocks = [(model.kernel(points, support), K_b, (1 - w1) / (gamma * p2))]
    blocks += [(model.kernel(points[:, :c], support[:, :c]), K_s, w1 / (gamma * p1))]
    roots = [feature_root(K) * np.sqrt(weight) for _, K, weight in blocks]
    Phi = np.hstack([cross @ root for (cross, _, _), root in zip(blocks, roots, strict=True)])
    bias = batch.Y[rows].mean(0)
    V = np.linalg.solve(Phi.T @ Phi + np.eye(Phi.shape[1]), Phi.T @ (batch.Y[rows] - bias))
    A_b, A_s = roots[0] @ V[: len(support)], roots[1] @ V[len(support) :]
    return replace(model, support=support, A_s=A_s, A_b=A_b, bias=bias, name="kernel compact")
