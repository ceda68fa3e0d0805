"""What `benchmarks.node` measures with: certificates, and an interpreter to compare memory with.

python parts.py             # numpy, paho and msgpack, and no more
python parts.py postponing  # without what a node keeps paho from loading
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

HOST = "127.0.0.1"


def certificates(folder: Path) -> None:
    """An authority, a broker for 127.0.0.1 and a client."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    out = ["-keyout", "ca.key", "-out", "ca.pem"]
    openssl("req", "-x509", *curve, *out, "-days", "2", "-subj", "/CN=ca")
    (folder / "san").write_text(f"subjectAltName=IP:{HOST}\n")
    for name in ("broker", "client"):
        files = ["-keyout", f"{name}.key", "-out", f"{name}.csr"]
        openssl("req", *curve, *files, "-subj", f"/CN={name}")
        request = ["-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", "san"]
        signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        openssl("x509", "-req", *request, *signer)
        (folder / f"{name}.key").chmod(0o600)


def idle(*, postponing: bool = False) -> None:
    """An interpreter with the three libraries loaded, until its input ends."""
    import msgpack  # type: ignore[import-untyped]  # noqa: F401, PLC0415
    import numpy as np  # noqa: F401, PLC0415

    if postponing:  # as `edge_opid.link.postponed` has it, without the rest of ours
        sys.modules["urllib.request"] = ModuleType("urllib.request")
    import paho.mqtt.client  # noqa: F401, PLC0415

    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    idle(postponing="postponing" in sys.argv)
