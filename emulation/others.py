"""Other people's wheels for a machine, fetched here: it reaches no index itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from emulation.architectures import Architecture

NEEDED = ("numpy", "paho-mqtt", "msgpack", "pynacl", "cffi", "pycparser")
LITERT = (
    "ai-edge-litert",
    "backports.strenum",
    "flatbuffers",
    "ml-dtypes",
    "protobuf",
    "tqdm",
    "typing-extensions",
)
TFLITE = ("tflite-runtime", "numpy<2")
WANTED = {"trixie": ("3.13", (*NEEDED, *LITERT)), "bookworm": ("3.11", (*NEEDED, *TFLITE))}
"""Which Python a release has, and what the pages let pip install on it."""
GLIBC = ("_2_27", "_2_28", "_2_34")  # no newer than Debian 12's


def fetched(architecture: Architecture, release: str, folder: Path) -> Path:
    """A folder with the wheels for this release, as pip would fetch them there; not all exist."""
    python, names = WANTED[release]
    folder /= release
    noted = folder / "asked-for"
    asked = noted.read_text().split() if noted.exists() else []
    for name in (each for each in names if each not in asked):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", str(folder)]
        command += ["--python-version", python, "--platform", architecture.platform]
        for glibc in GLIBC:
            command += ["--platform", architecture.platform.replace("2014", glibc)]
        if subprocess.run([*command, name], capture_output=True, check=False).returncode:
            print(f"  no wheel of {name} for {architecture.debian}: Debian has to have it")
    noted.write_text(" ".join(names))
    return folder
