"""What a node decides, without any I/O: messages and time in, actions out.

Start with `node` (the whole) and `state` (how inputs change it). Then, along the way of a reading:
`foreign` and `rate_limit` (what may come in), `sequencing` and `sources` (each number once, in
order), `journal_records` (what is written), `joining` (values to instances), `recent` (labels that
come late), `local_models`, `memories` and `logistic` (what was learned), `pushed_models` and
`trial` (what a gateway sends), `external_model` (a file to serve), `scoreboard` (who has been
right), `effects` and `publications` (what the world hears), `uncommitted` (what waits for a
commit). Beside it: `silence`, `warmup`, and `orders` (what a gateway may ask). `actions` is what a
node asks of whoever runs it.
"""
