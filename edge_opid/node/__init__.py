"""What a node decides, without any I/O: messages and time in, actions out.

Read in this order: `inputs` (what may change a node), `actions` (what it asks for), `intake` (which
messages become inputs), `assembly` (values to instances), `recent` (labels that come late),
`scoreboard` (who has been right), `slots` (pushed weights), `memories` (what was learned through
some sensors), `local_models` and `silence` (the node's sensors), `orders` (what may be asked),
`state` (how inputs change a node), `effects`, `serving` and `voice` (what the world hears of it),
`debts` (what waits for a commit), `edge_node` (the whole). `confidence` serves `Classifier` so far.
"""
