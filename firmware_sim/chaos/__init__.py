"""Seeded disasters, the witness who checks every promise, and bugs planted to test the witness."""
