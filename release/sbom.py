"""The bill of materials inside a wheel (PEP 770): `.dist-info/sboms/edge-opid.cdx.json`.

It lists what the wheel holds that somebody else wrote, what compiled the library in it, and what it
asks pip for. Scanners of vulnerabilities read it; it is CycloneDX 1.6.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
import uuid
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from release.archives import Files

# Other people's files that a wheel carries, by their names: library-1.2.3.something.
VENDORED = re.compile(r"gateway/web/static/vendor/(\w+)-(\d[\d.]*\d)\..*js")
VENDORED_LICENCE = "MIT"


def bill_of_materials(files: Files, project: Path, platform: str, epoch_s: int) -> bytes:
    """What is in a wheel of these files for this platform, as CycloneDX."""
    about = tomllib.loads(project.read_text("utf-8"))["project"]
    root = _component(about["name"], about["version"], "pypi", licence=about["license"])
    bom = Bom(
        # A number that is the same for the same wheel, where a random one is usual.
        serial_number=uuid.uuid5(
            uuid.NAMESPACE_URL, f"{root.purl}?platform={platform}&at={epoch_s}"
        ),
    )
    bom.metadata.timestamp = datetime.fromtimestamp(epoch_s, UTC)
    bom.metadata.component = root
    compiler = _component("ziglang", version("ziglang"), "pypi")
    bom.metadata.tools = ToolRepository(components=[compiler])
    parts = [*_libraries(files), *_vendored(files), *_asked_for(about["dependencies"])]
    bom.components.update(parts)
    bom.register_dependency(root, parts)
    text: str = JsonV1Dot6(bom).output_as_string(indent=1)  # untyped where it is not installed
    return f"{text}\n".encode()


def _component(
    name: str,
    found: str | None,
    kind: str,
    *,
    licence: str | None = None,
    data: bytes | None = None,
) -> Component:
    purl = PackageURL(type=kind, name=name, version=found)
    digest = [] if data is None else [HashType(alg=HashAlgorithm.SHA_256, content=_hex(data))]
    return Component(
        name=name,
        version=found,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=str(purl),
        licenses=[] if licence is None else [DisjunctiveLicense(id=licence)],
        hashes=digest,
    )


def _libraries(files: Files) -> list[Component]:
    """The compiled kernel: our own C file."""
    return [
        Component(
            name=name,
            type=ComponentType.FILE,
            bom_ref=name,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=_hex(data))],
        )
        for name, data in sorted(files.items())
        if name.endswith(".so")
    ]


def _vendored(files: Files) -> list[Component]:
    found = ((VENDORED.fullmatch(name), data) for name, data in sorted(files.items()))
    return [
        _component(name[1], name[2], "npm", licence=VENDORED_LICENCE, data=data)
        for name, data in found
        if name is not None
    ]


def _asked_for(dependencies: list[str]) -> list[Component]:
    """What pip fetches beside us: names without a version, since ours are lower bounds."""
    found = [_component(re.split(r"[<>=!~ ;\[]", each)[0], None, "pypi") for each in dependencies]
    for each in found:
        each.scope = ComponentScope.REQUIRED
    return found


def _hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
