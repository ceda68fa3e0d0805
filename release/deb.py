"""`make deb`: the node alone as a Debian package, for Debian 13 and Raspberry Pi OS trixie.

    python -m release.deb [--folder dist]

Everything it needs is Debian's. The library comes from the wheels in the folder (`make wheels`),
the unit is the one that `opid-node init` installs, the manual page is what `--help` says. Each
package is made twice and must have the same digest, which is then listed in `SHA256SUMS`, too.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from email.utils import formatdate
from pathlib import Path

from emulation import DIST, ROOT
from emulation.debian import need
from release.archives import Files, read_zip, sha256
from release.wheels import PROJECT, source_date, write_digests

HERE = Path(__file__).parent / "debian"
WHEELS = {
    "amd64": "manylinux_2_17_x86_64",
    "arm64": "manylinux_2_17_aarch64",
    "armhf": "manylinux_2_17_armv7l",
}
MODULES, DOCUMENTS = "usr/lib/python3/dist-packages", "usr/share/doc/opid-node"
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
UNIT = "edge_opid/service/opid-node.service"
OF_A_VENV, OF_DEBIAN = "/opt/opid-node/bin/", "/usr/bin/"
EXECUTABLE = ("usr/bin/", "DEBIAN/p")  # programs; preinst, postinst, prerm, postrm
WHATIS = "classify sensor readings, and keep learning while sensors come and go"
CONFIGURED = "ConditionPathExists=/etc/opid-node/node.toml\n"
MANUAL_OF_UNIT = "Documentation=man:opid-node(1)\n"


def contents(wheel: Files, architecture: str, version: str, epoch_s: int) -> dict[str, bytes]:
    """Every file of the package by its path."""
    found = {
        f"{MODULES}/{name}": data
        for name, data in wheel.items()
        if name.startswith("edge_opid/") or name.endswith(".dist-info/METADATA")
    }
    found |= {
        "usr/bin/opid-node": (HERE / "opid-node").read_bytes(),
        "usr/lib/systemd/system/opid-node.service": unit(wheel[UNIT].decode()).encode(),
        "usr/lib/sysusers.d/opid-node.conf": (HERE / "sysusers.conf").read_bytes(),
        "usr/lib/tmpfiles.d/opid-node.conf": (HERE / "tmpfiles.conf").read_bytes(),
        f"{DOCUMENTS}/copyright": (HERE / "copyright").read_bytes(),
        f"{DOCUMENTS}/changelog.gz": gzipped((ROOT / "CHANGELOG.md").read_bytes()),
        f"{DOCUMENTS}/changelog.Debian.gz": gzipped(changelog(version, epoch_s).encode()),
        "usr/share/man/man1/opid-node.1.gz": gzipped(manual(version, epoch_s)),
        f"{DOCUMENTS}/examples/node.toml": (ROOT / "docs/node.example.toml").read_bytes(),
    }
    kilobytes = sum(len(data) for data in found.values()) // 1024
    control = (HERE / "control").read_text("utf-8")
    about = control.format(version=version, architecture=architecture, kilobytes=kilobytes)
    meta = {name: (HERE / name).read_bytes() for name in SCRIPTS}
    meta |= {"control": about.encode(), "md5sums": md5sums(found)}
    return {f"DEBIAN/{name}": data for name, data in meta.items()} | found


def gzipped(data: bytes) -> bytes:
    """The same bytes for the same data, whenever it is done."""
    return gzip.compress(data, mtime=0)


def md5sums(files: Files) -> bytes:
    r"""What `dpkg --verify` compares: an SD card may spoil a program, too.

    >>> md5sums({"usr/bin/opid-node": b""})
    b'd41d8cd98f00b204e9800998ecf8427e  usr/bin/opid-node\n'
    """
    digests = {path: hashlib.md5(data, usedforsecurity=False) for path, data in files.items()}
    return "".join(f"{each.hexdigest()}  {path}\n" for path, each in digests.items()).encode()


def changelog(version: str, epoch_s: int) -> str:
    """What Debian's tools read; what is new stands in the changelog for users beside it."""
    (maintainer,) = re.findall(r"(?m)^Maintainer: (.*)$", (HERE / "control").read_text("utf-8"))
    return (
        f"opid-node ({version}-1) trixie; urgency=medium\n\n"
        f"  * edge-opid {version}: see changelog.gz.\n\n"
        f" -- {maintainer}  {formatdate(epoch_s)}\n"
    )


def manual(version: str, epoch_s: int) -> bytes:
    """`man opid-node`: every verb with its arguments, from the parser itself."""
    with tempfile.TemporaryDirectory() as name:
        page = Path(name) / "page"
        options = {
            "module": "edge_opid.cli.parser",
            "function": "parser",
            "prog": "opid-node",
            "description": WHATIS,
            "format": "single-commands-section",
            "manual-title": "edge-opid",
            "project-name": "edge-opid",
            "version": version,
            "include": str(HERE / "manual"),
            "output": str(page),
        }
        words = [f"--{key}={value}" for key, value in options.items()]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s), "COLUMNS": "80"}
        command = [str(Path(sys.executable).with_name("argparse-manpage")), *words]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        return page.read_bytes().replace(b"POSITIONAL ARGUMENTS", b"COMMANDS")


def unit(text: str) -> str:
    r"""The unit for Debian's Python, and a start without a configuration that is no failure.

    >>> text = "# by hand: …\n\n[Unit]\nExecStart=/opt/opid-node/bin/opid-node run\n"
    >>> print(unit(text))
    [Unit]
    Documentation=man:opid-node(1)
    ConditionPathExists=/etc/opid-node/node.toml
    ExecStart=/usr/bin/opid-node run
    <BLANKLINE>
    """
    begin = text.index("[Unit]\n")
    body = text[begin:].replace("[Unit]\n", f"[Unit]\n{MANUAL_OF_UNIT}{CONFIGURED}", 1)
    python = f"{OF_A_VENV}python "
    return body.replace(python, f"{OF_DEBIAN}python3 ").replace(OF_A_VENV, OF_DEBIAN)


def pack(files: Files, to: Path, epoch_s: int) -> None:
    """The package of these files, with one date and root as the owner of all."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "root"
        for path, data in files.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            place.chmod(0o755 if path.startswith(EXECUTABLE) else 0o644)
        for each in [root, *root.rglob("*")]:
            if each.is_dir():
                each.chmod(0o755)
            os.utime(each, (epoch_s, epoch_s))
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(root), str(to)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s)}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """A package for each architecture that has a wheel in the folder, and a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=DIST)
    folder = parser.parse_args().folder
    need("dpkg-scanpackages")
    epoch_s, made = source_date(), 0
    version = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["version"]
    for architecture, platform in WHEELS.items():
        for wheel in folder.glob(f"edge_opid-{version}-cp311-abi3-{platform}.whl"):
            package = folder / f"opid-node_{version}-1_{architecture}.deb"
            again = folder / f"{package.name}.again"
            for each in (package, again):
                pack(contents(read_zip(wheel), architecture, version, epoch_s), each, epoch_s)
            if sha256(package) != sha256(again):
                sys.stderr.write(f"release.deb: {package.name} differs when made again\n")
                return 1
            again.unlink()
            size = package.stat().st_size
            print(f"{package.name:32} {size:>8} B  {sha256(package)[:12]}  same digest twice")
            made += 1
    if not made:
        sys.stderr.write(f"release.deb: no wheel of {version} in {folder}: make wheels first\n")
    else:
        write_digests(folder)
    return 0 if made else 1


if __name__ == "__main__":
    sys.exit(main())
