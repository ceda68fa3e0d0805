"""Few labels and the order of time: the node with its time layer, and without."""
