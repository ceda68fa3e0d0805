"""Wheels are what their names say, and the same to the bit when they are packed again."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from release.archives import (
    read_tar,
    read_zip,
    sha256,
    with_record,
    write_tar_gz,
    write_zip,
)
from release.targets import LIBRARY, TARGETS, WheelError, look_into

AARCH64, ARMV7L = TARGETS[1], TARGETS[2]
NAME = f"edge_opid-0.1.0-cp311-abi3-{AARCH64.platform}.whl"
INFO = "edge_opid-0.1.0.dist-info"


def library(machine=AARCH64.elf, more=b"\0PyInit__compiled\0GLIBC_2.17\0"):
    return b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little") + more


def wheel(**changed):
    files = {
        LIBRARY: library(),
        f"{INFO}/WHEEL": f"Wheel-Version: 1.0\nTag: cp311-abi3-{AARCH64.platform}\n".encode(),
        f"{INFO}/sboms/edge-opid.cdx.json": b"{}",
        f"{INFO}/RECORD": b"",
    }
    return files | changed


def test_a_whole_wheel_is_let_through():
    look_into(NAME, wheel(), AARCH64)


@pytest.mark.parametrize(
    ("files", "target", "complaint"),
    [
        ({f"{INFO}/WHEEL": b""}, AARCH64, "has no edge_opid/native"),
        (wheel(**{LIBRARY: library(62)}), AARCH64, "is for machine 62, not 183"),
        (wheel(**{LIBRARY: b""}), AARCH64, "is for machine 0, not 183"),
        (wheel(**{LIBRARY: library(more=b"\0PyInit__")}), AARCH64, "has no PyInit__compiled"),
        (
            wheel(**{LIBRARY: library(more=b"\0PyInit__compiled\0GLIBC_2.28\0")}),
            AARCH64,
            "needs glibc 2.28",
        ),
        (wheel(**{f"{INFO}/WHEEL": b"Tag: py3-none-any\n"}), AARCH64, "names another tag"),
        (wheel(), ARMV7L, "must be named …-cp311-abi3-manylinux_2_17_armv7l.whl"),
        (
            {k: v for k, v in wheel().items() if "sboms" not in k},
            AARCH64,
            "has no bill of materials",
        ),
    ],
)
def test_a_wheel_that_is_not_what_its_name_says_is_refused(files, target, complaint):
    """`optional = true`: a failed compile gives an ARM tag and no library, or this machine's."""
    with pytest.raises(WheelError, match=complaint):
        look_into(NAME, files, target)


def test_a_library_for_musl_may_not_ask_for_glibc():
    """The compiler took this machine's libc: Alpine could not load it."""
    musl = replace(AARCH64, platform="musllinux_1_2_aarch64")
    files = wheel(**{f"{INFO}/WHEEL": f"Tag: cp311-abi3-{musl.platform}\n".encode()})
    with pytest.raises(WheelError, match=r"needs glibc 2\.17"):
        look_into(f"edge_opid-0.1.0-cp311-abi3-{musl.platform}.whl", files, musl)


def test_archives_do_not_depend_on_the_order_or_time_of_packing(tmp_path, monkeypatch):
    """The same files, found in another order, in another time zone, by a user of another name."""
    digests = set()
    for zone, order in (("UTC", 1), ("Asia/Tokyo", -1)):
        monkeypatch.setenv("TZ", zone)
        files = dict([*wheel().items()][::order])
        write_zip(tmp_path / "a.whl", with_record(files), 1_800_000_000)
        write_tar_gz(tmp_path / f"{order}.tar.gz", files, 1_800_000_000)
        digests.add((sha256(tmp_path / "a.whl"), sha256(tmp_path / f"{order}.tar.gz")))
    assert len(digests) == 1
    kept = read_zip(tmp_path / "a.whl")
    assert {**kept, f"{INFO}/RECORD": b""} == wheel() == read_tar(tmp_path / "1.tar.gz")
    assert zipfile.ZipFile(tmp_path / "a.whl").testzip() is None


def test_the_bill_of_materials_names_what_others_wrote():
    """A library in the pages' folder has a hole, and no scanner knows that we carry it."""
    sbom = pytest.importorskip("release.sbom", reason="no cyclonedx-python-lib: the extra release")
    vendored = "gateway/web/static/vendor/uPlot-1.6.32.iife.min.js"
    files = wheel(**{vendored: b"var uPlot"})
    bill = sbom.bill_of_materials(files, Path("pyproject.toml"), AARCH64.platform, 1_800_000_000)
    assert bill == sbom.bill_of_materials(
        files, Path("pyproject.toml"), AARCH64.platform, 1_800_000_000
    )
    found = {each["name"]: each for each in json.loads(bill)["components"]}
    assert found["uPlot"]["purl"] == "pkg:npm/uplot@1.6.32"
    assert {LIBRARY, "numpy", "paho-mqtt", "msgpack", "pynacl"} <= found.keys()
