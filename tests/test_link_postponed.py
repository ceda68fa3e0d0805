"""A module that paho only names takes no memory, and is itself as soon as somebody uses it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import edge_opid.link.connection
before = "http.client" in sys.modules, "email" in sys.modules
import urllib.request
print(*before, urllib.request.Request("http://a/b").selector, "http.client" in sys.modules)
"""


def test_what_paho_asks_proxies_with_is_not_loaded_until_it_is_used() -> None:
    """Half of the standard library came with one import; whoever needs it must still find it."""
    command = [sys.executable, "-c", PROGRAM]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "False", "/b", "True"]


def test_the_import_system_is_as_it_was_afterwards() -> None:
    """A finder left behind would make every later import of that name a surprise."""
    program = (
        "import sys; before = list(sys.meta_path); import edge_opid.link.connection; "
        "print(before == sys.meta_path)"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == "True\n"
