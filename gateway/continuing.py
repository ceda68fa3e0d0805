"""The group's C-stage continued on a batch: for many nodes that were heard for a few moments.

The forms of the E-stage are chosen by how right they are on held-out instances, as if each instance
were drawn on its own. In a large cohort they are not: a hundred nodes fill a batch within two
readings, all at the same time of the same day. What a form learns of that hour is confirmed by the
instances of that hour that were held out, and is wrong an hour later.

So, until one node has brought `MOMENTS_MIN` labelled instances, nothing is chosen. The batch counts
as the next readings of the learner that the pooled statistics are of: everything that the group
knew of the survivors weighs as much as it always did, and the newcomers, which were at their
reference before, begin to be known.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edge_opid.learner.statistics import Statistics, carried, solve

from .estage import BestModel, z_alone
from .material import FitJob, Floats
from .pooling import Pool

CONTINUED = "continued"
MOMENTS_MIN = 30
"""The first batch of a single node, from which a form of the E-stage may be chosen."""
BLOCKS = 5
"""Parts of a batch that are held out, each a stretch of time."""


def too_brief(job: FitJob) -> bool:
    """Whether the batch is of several nodes, and none of them was heard for long."""
    heard = Counter((each.site, each.node) for each in job.examples[: job.size])
    return len(heard) > 1 and max(heard.values()) < MOMENTS_MIN


def continued(
    job: FitJob, found: Pool, X: Floats, y: NDArray[np.int64]
) -> tuple[Floats, BestModel]:
    """Weights for every column of the change, and how right they are on what was held out."""
    columns, classes = job.change.columns, len(job.classes)
    places = {role: place for place, role in enumerate(found.roles)}
    sources = [places.get(column) for column in columns]
    before = carried(found.known, sources, 1.0, job.lam, job.rho)
    W = _weights(before, X, y, job)
    hits = np.zeros(len(y))
    for block in np.array_split(np.arange(len(y)), BLOCKS):
        others = np.delete(np.arange(len(y)), block)
        said = X[block] @ _weights(before, X[others], y[others], job)
        hits[block] = said.argmax(1) == y[block]
    nodes = len({(each.site, each.node) for each in job.examples[: job.size]})
    why = (
        f"{CONTINUED}: {len(y)} instances of {nodes} nodes are too few moments to choose by; "
        f"{100 * hits.mean():.1f} % of held-out ones are right."
    )
    model = replace(z_alone(classes, new=0), name=CONTINUED)
    return W, BestModel(model, (), why, hits)


def _weights(before: Statistics, X: Floats, y: NDArray[np.int64], job: FitJob) -> Floats:
    """The ridge on everything before and this part of the batch."""
    Y = np.eye(len(job.classes))[y]
    batch = Statistics(X.T @ X, X.T @ Y, len(y), float(len(y)))
    return solve(before + batch, 0, job.lam, job.rho)[0]
