"""A peer with the same layer behind it: what of the gain is the layer's, and what the node's."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from benchmarks.common.few_labels import Schedule
from benchmarks.time_order.streams import TimedStream
from edge_opid.node.scoreboard import PredictorName
from edge_opid.node.time_layer import Evidence, TimeLayer


def peer_run(stream: TimedStream, schedule: Schedule) -> dict[str, Any] | None:
    """River's logistic regression, one a class, alone and with the layer; None without river."""
    try:
        linear = importlib.import_module("river.linear_model")
        multiclass = importlib.import_module("river.multiclass")
        preprocessing = importlib.import_module("river.preprocessing")
    except ImportError:
        return None
    classifier = multiclass.OneVsRestClassifier(linear.LogisticRegression())
    model = preprocessing.StandardScaler() | classifier
    layer, waiting = TimeLayer(stream.classes), dict[int, tuple[Evidence, dict[str, float]]]()
    alone, behind = [], []
    for place in range(len(stream.y)):
        row = stream.row(place)
        said = model.predict_proba_one(row)
        scores = [float(said.get(k, 0.0)) for k in range(stream.classes)]
        seen = layer.evidence(scores, PredictorName.OWN, int(stream.times_ms[place]))
        told = layer.probabilities(seen)
        alone.append(int(np.argmax(scores)))
        behind.append(told.index(max(told)))
        layer.go_on(seen)
        if schedule.labelled[place]:
            waiting[place] = seen, row
        due = schedule.due(place)
        if due is not None:
            evidence, values = waiting.pop(due)
            model.learn_one(values, int(stream.y[due]))
            layer.learn(evidence, int(stream.y[due]))
    return {
        "peer": float(np.mean(np.array(alone) == stream.y)),
        "layered": float(np.mean(np.array(behind) == stream.y)),
    }
