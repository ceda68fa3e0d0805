"""BLAKE2b as hashlib has it, without hashlib, which loads OpenSSL on the way: 3 MB."""

from __future__ import annotations

try:
    from _blake2 import blake2b  # where hashlib has it from
except ImportError:  # another Python
    from hashlib import blake2b

__all__ = ["blake2b"]
