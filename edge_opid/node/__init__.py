"""What a node decides, without any I/O: messages and time in, actions out.

Start with `node` (everything together), `state` (what is remembered) and `inputs` (how an input
changes it). Then, along the way of a reading: `rate_limit` (what may come in), `sequencing` and
`sources` (each number once, in order), `journal_records` (what is written), `joining` and
`last_values` (values to instances), `predicting` (which predictor is served), `recent` (late
labels), `truth` (labels from devices), `local_models`, `memories` and `logistic` (what was
learned), `time_layer` (what the last moments say), `scoreboard` (which predictor was right),
`external_model` (a TFLite file), `effects` and `publications` (what is published), `uncommitted`
(what waits for a commit).

What changes sensors and settings: `configuration` (what a start may change) and `reconfiguring`
(doing it), `warmup` and `newcomers` (new sensors), `scales` (which prove wrong) and `rescaling`
(changing them), `silence` and `rhythm` (what is overdue), `orders` (what a gateway may order),
`obeying` (doing it), `pushed_models` and `trial` (its weights). `actions` are what a node
asks its loop to do.
"""
