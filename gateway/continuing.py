"""The group's C-stage continued on a batch: for many nodes that were heard for a few moments.

The forms of the E-stage are chosen by how right they are on held-out instances, as if each instance
were drawn on its own. In a large cohort they are not: a hundred nodes fill a batch within two
readings, all at the same time of the same day. What a form learns of that hour is confirmed by the
instances of that hour that were held out, and is wrong an hour later.

So, until one node has brought `MOMENTS_MIN` labelled instances, nothing is chosen. The batch counts
as the next readings of the learner that the pooled statistics are of: everything that the group
knew of the survivors weighs as much as it always did, and the newcomers, which were at their
reference before, begin to be known. It is the same estimate from more readings each time, so it is
pushed without a vote: to hold an hour out is to ask whether it was like the hours before.
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


def too_brief(job: FitJob) -> bool:
    """Whether the batch is of several nodes, and none of them was heard for long."""
    heard = Counter((each.site, each.node) for each in job.examples[: job.size])
    return len(heard) > 1 and max(heard.values()) < MOMENTS_MIN


def continued(
    job: FitJob, found: Pool, X: Floats, y: NDArray[np.int64]
) -> tuple[Floats, BestModel]:
    """Weights for every column of the change, and how right the group was before the batch."""
    columns, classes = job.change.columns, len(job.classes)
    places = {role: place for place, role in enumerate(found.roles)}
    sources = [places.get(column) for column in columns]
    before = carried(found.known, sources, 1.0, job.lam, job.rho)
    Y = np.eye(classes)[y]
    batch = Statistics(X.T @ X, X.T @ Y, len(y), float(len(y)))
    known, W = (solve(each, 0, job.lam, job.rho)[0] for each in (before, before + batch))
    hits = np.asarray((X @ known).argmax(1) == y, float)
    nodes = len({(each.site, each.node) for each in job.examples[: job.size]})
    why = (
        f"{CONTINUED}: {len(y)} instances of {nodes} nodes are too few moments to choose by; "
        f"what was known before is right in {100 * hits.mean():.1f} % of them."
    )
    model = replace(z_alone(classes, new=0), name=CONTINUED)
    return W, BestModel(model, (), why, hits)
