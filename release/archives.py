"""Archives that are the same to the bit whoever packs them, and whenever.

A zip or tar file holds more than its files: their order, dates, owners and modes. Each of these is
set here from the file's name alone, but for the date, which is the source's.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

FIRST_DATE_OF_ZIP = 315_532_800  # 1980: a zip file knows nothing earlier
Files = Mapping[str, bytes]


def read_zip(path: Path) -> dict[str, bytes]:
    """Every file of an archive by its name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name[-1] != "/"}


def write_zip(path: Path, files: Files, epoch_s: int) -> None:
    """Files in the order given, with one date and mode.

    Zip dates are local times, so the date is said in UTC, whatever the clock on the wall is.
    """
    date = time.gmtime(max(epoch_s, FIRST_DATE_OF_ZIP))[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, so that the mode counts
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, data)


def with_record(files: Files) -> dict[str, bytes]:
    """A wheel's files in order, and its RECORD written anew, which must come last.

    >>> made = with_record({"a-1.dist-info/RECORD": b"", "a.py": b"1"})
    >>> print(made["a-1.dist-info/RECORD"].decode())
    a.py,sha256=a4ayc_80_OGda4BO_1o_V0etpOqiLx1JwB5S3beHW0s,1
    a-1.dist-info/RECORD,,
    <BLANKLINE>
    """
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    # The metadata of a wheel stand at its end, so that they can be found without reading it all.
    rest = sorted(files.keys() - {record}, key=lambda name: (".dist-info/" in name, name))
    lines = [f"{name},sha256={_digest(files[name])},{len(files[name])}" for name in rest]
    text = "".join(f"{line}\n" for line in [*lines, f"{record},,"])
    return {**{name: files[name] for name in rest}, record: text.encode()}


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def read_tar(path: Path) -> dict[str, bytes]:
    """Every plain file of an archive by its name."""
    with tarfile.open(path) as archive:
        found = ((entry, archive.extractfile(entry)) for entry in archive.getmembers())
        return {entry.name: file.read() for entry, file in found if file is not None}


def write_tar_gz(path: Path, files: Files, epoch_s: int) -> None:
    """Files in order of their names, all of root's, with one date and mode."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(files[name]), epoch_s, 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    # No name and no time in the header of gzip either.
    path.write_bytes(gzip.compress(plain.getvalue(), mtime=0))


def sha256(path: Path) -> str:
    """The digest that `sha256sum` prints."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
