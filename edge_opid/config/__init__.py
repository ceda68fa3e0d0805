"""Configuration files against a schema; every mistake is reported with its line and key."""
