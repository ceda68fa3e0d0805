"""Configuration files against a schema; every mistake is told with its line and key."""
