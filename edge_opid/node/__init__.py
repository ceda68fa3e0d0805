"""What a node decides, without any I/O: messages and time in, actions out.

Start with `node` (the whole), `state` (what is remembered) and `inputs` (how an input changes it).
Then, along the way of a reading: `rate_limit` (what may come in), `sequencing` and `sources` (each
number once, in order), `journal_records` (what is written), `joining` and `last_values` (values to
instances), `predicting` (who is asked and served), `recent` (labels that come late), `truth` (who
knows what is so), `local_models`, `memories` and `logistic` (what was learned), `time_layer` (what
the moments before tell), `scoreboard` (who has been right), `external_model` (a file to serve),
`effects` and `publications` (what the world hears), `uncommitted` (what waits for a commit).

What changes sensors and settings: `configuration` (what a start may change) and `reconfiguring`
(doing it), `warmup` and `newcomers` (sensors to come), `scales` (whose prove wrong) and `rescaling`
(another one), `silence` and `rhythm` (who is overdue), `orders` (what a gateway may ask), `obeying`
(doing it), `pushed_models` and `trial` (its weights). `actions` is what a node asks of whoever runs
it.
"""
