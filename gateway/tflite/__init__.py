r"""`.tflite` files of E-stage predictors, for pipelines that speak TFLite. No TensorFlow needed.

The graph is FULLY_CONNECTED(x_s, W^(s)) → CONCATENATION(Z, x_a) → FULLY_CONNECTED(V, bias) →
scores, or one FULLY_CONNECTED where all is one matrix. The names of the input and
output tensors say which columns and classes they hold, as `edge_opid.models.tflite` reads them:

>>> from gateway.tflite import matrix_to_tflite
>>> weights = [[1.0, -1.0], [0.2, 0.1]]
>>> data = matrix_to_tflite(weights, ["temp", "bias"], ["fresh", "stale"], weights="int8")
>>> b"temp\nbias" in data, b"fresh\nstale" in data
(True, True)

Read in this order: `export` (what goes in), `rounding` (int8), `graph` (what it becomes), `flat`
(its bytes).
"""

from gateway.tflite.export import ExportError, WeightType, matrix_to_tflite, to_tflite

__all__ = ["ExportError", "WeightType", "matrix_to_tflite", "to_tflite"]
