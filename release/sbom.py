"""What is in a program: the list for machines (CycloneDX) and the licences for people."""

from __future__ import annotations

import email
import email.message
import json
import re
import time
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from release import archives

_PLAIN: Final = {
    "MIT License": "MIT",
    "MIT": "MIT",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "Zope Public License": "ZPL-2.1",
}
"""SPDX identifiers of trove classifiers, for distributions that name no expression."""
_KNOWN: Final = {"cryptography": "Apache-2.0 OR BSD-3-Clause"}
"""Where a wheel has the texts only."""
OF_SOURCES: Final = {
    "python3.13": "PSF-2.0",
    "openssl": "Apache-2.0",
    "sqlite3": "blessing",
    "zlib": "Zlib",
    "libffi": "MIT",
}
"""Of the source packages that the Linux Python is built from."""
_SCRIPT: Final = re.compile(rb"/\*! ([a-z-]+) ([0-9.]+) \(([A-Za-z0-9.-]+)\)")
_LIBRARY: Final = re.compile(
    r"[^/]+\.libs/(?P<name>lib[A-Za-z0-9_+]+)-[0-9a-f]{8}\.so\.(?P<version>[0-9.]+)"
)
"""A library that a tool such as auditwheel put beside a wheel's own modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One piece of software that is shipped."""

    name: str
    version: str
    licence: str
    purl: str
    sha256: str = ""


def of_wheels(wheels: Iterable[Path]) -> Iterator[Component]:
    """Each wheel, with the SHA-256 of the file that was installed."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            metadata = _metadata(archive)
        name = _normal(metadata["Name"])
        yield Component(
            name=name,
            version=metadata["Version"],
            licence=_licence(metadata),
            purl=f"pkg:pypi/{name}@{metadata['Version']}",
            sha256=archives.sha256(wheel),
        )


def inside_wheels(wheels: Iterable[Path]) -> Iterator[Component]:
    """What others made and wheels bring along: by their lists, else by libraries and scripts.

    auditwheel lists what it took from the builder's system, Rust's tools list crates; a library
    that the project built itself is in neither, and is named as its file is.
    """
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            names = sorted(archive.namelist())
            for name in names:
                if re.search(r"\.dist-info/sboms/[^/]+\.json$", name):
                    yield from _listed(json.loads(archive.read(name)))
            for name in names:
                if found := _LIBRARY.fullmatch(name):
                    yield _library(found, archive.read(name), wheel)
                if name.endswith(".js"):
                    yield from _script(archive.read(name))


def _script(content: bytes) -> Iterator[Component]:
    """The npm package that a script's first line names."""
    found = _SCRIPT.match(content)
    if found:
        name, version, licence = (part.decode() for part in found.groups())
        yield Component(
            name=name,
            version=version,
            licence=licence,
            purl=f"pkg:npm/{name}@{version}",
        )


def _listed(body: dict[str, Any]) -> Iterator[Component]:
    """The components of a list that a wheel brings along, without the wheel itself."""
    for each in body.get("components", ()):
        purl = str(each.get("purl") or "")
        if purl and not purl.startswith("pkg:pypi/"):
            given = [
                entry["expression"] for entry in each.get("licenses") or () if "expression" in entry
            ]
            yield Component(
                name=str(each["name"]),
                version=str(each.get("version") or ""),
                licence=str(given[0]) if given else "LicenseRef-see-LICENCES.txt",
                purl=purl,
            )


def _library(found: re.Match[str], content: bytes, wheel: Path) -> Component:
    """A shared library in a wheel: OpenSSL holds its version, for others the file's name counts."""
    said = re.search(rb"OpenSSL (\d+\.\d+\.\d+)", content)
    openssl = found["name"] in ("libssl", "libcrypto") and said
    version = said[1].decode() if openssl and said else found["version"]
    return Component(
        name=found["name"],
        version=version,
        licence="LicenseRef-see-LICENCES.txt",
        purl=f"pkg:generic/{found['name']}@{version}?wheel={wheel.name}",
    )


def document(name: str, version: str, components: Iterable[Component]) -> str:
    """A CycloneDX 1.6 document in JSON, the same for the same components."""
    by_purl = {each.purl: each for each in components}
    listed = [by_purl[purl] for purl in sorted(by_purl)]
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(archives.epoch()))
    own = f"pkg:generic/{name}@{version}"
    body: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": moment,
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": name,
                "version": version,
                "licenses": [{"license": {"id": "MIT"}}],
                "purl": own,
            },
        },
        "components": [_entry(each) for each in listed],
        "dependencies": [{"ref": own, "dependsOn": [each.purl for each in listed]}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    body["serialNumber"] = f"urn:uuid:{serial}"
    return json.dumps(body, indent=2, sort_keys=True) + "\n"


def notices(wheels: Iterable[Path], folder: Path) -> Path:
    """LICENCES.txt in the folder: every licence of what the program brings along, in full.

    Takes in the LICENSE-*.txt of the folder, which came with the Python.
    """
    parts = [_heading("scheduled-events-bridge", "MIT", _own_licence())]
    for path in sorted(folder.glob("LICENSE-*.txt")):
        title = path.stem.removeprefix("LICENSE-")
        parts.append(_heading(title, "", path.read_text(encoding="utf-8", errors="replace")))
        path.unlink()
    for wheel in sorted(wheels):
        with zipfile.ZipFile(wheel) as archive:
            metadata = _metadata(archive)
            texts = [
                archive.read(name).decode(errors="replace")
                for name in sorted(archive.namelist())
                if name.partition(".dist-info/")[2].removeprefix("licenses/")
                in (metadata.get_all("License-File") or [])
            ]
        title = f"{metadata['Name']} {metadata['Version']}"
        parts.append(_heading(title, _licence(metadata), "\n".join(texts)))
    target = folder / "LICENCES.txt"
    target.write_text("\n".join(parts), encoding="utf-8")
    return target


def _own_licence() -> str:
    return (Path(__file__).parent.parent / "LICENSE").read_text(encoding="utf-8")


def _heading(title: str, licence: str, text: str) -> str:
    line = "=" * 80
    return f"{line}\n{title}{f' ({licence})' if licence else ''}\n{line}\n\n{text.strip()}\n"


def _entry(component: Component) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": component.purl,
        "name": component.name,
        "version": component.version,
        "purl": component.purl,
        "licenses": [{"expression": component.licence}],
    }
    if component.sha256:
        entry["hashes"] = [{"alg": "SHA-256", "content": component.sha256}]
    return entry


def _metadata(archive: zipfile.ZipFile) -> email.message.Message:
    (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(archive.read(name))


def _licence(metadata: email.message.Message) -> str:
    """The SPDX expression, from the field for it or from the classifiers; else a reference."""
    if expression := metadata["License-Expression"]:
        return str(expression)
    classified = {
        _PLAIN[last]
        for each in metadata.get_all("Classifier") or []
        if each.startswith("License ::") and (last := each.split(" :: ")[-1]) in _PLAIN
    }
    if classified:
        return " OR ".join(sorted(classified))
    plain = str(metadata["License"] or "").replace(" ", "-")
    if re.fullmatch(r"[A-Z][A-Za-z0-9.-]{2,20}", plain):
        return plain
    return _KNOWN.get(_normal(metadata["Name"]), "LicenseRef-see-LICENCES.txt")


def _normal(name: str) -> str:
    return name.replace("_", "-").replace(".", "-").lower()
