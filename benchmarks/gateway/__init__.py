"""What a gateway costs: a wave of orders, its store, its fits, its batches."""
