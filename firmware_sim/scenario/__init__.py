"""Scenarios: a TOML file in, a table and a plot of who was right out."""
