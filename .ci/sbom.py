"""The bill of materials of an installation, with licences: CycloneDX 1.6 in JSON, which the wheel
holds (PEP 770).

`python .ci/sbom.py` writes `deploy/toolgate.cdx.json` from deploy/locks/run.txt, and the licences
from what the packages installed here say of themselves; of those for other systems none is known.
It prints packages whose licence is not on the list of those that may be shipped.
"""

import json
import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "deploy" / "locks" / "run.txt"
SBOM = ROOT / "deploy" / "toolgate.cdx.json"
ENTRY = re.compile(
    r"^(?P<name>[a-z0-9.-]+)==(?P<version>\S+)[^\n]*\\\n(?P<hashes>(?: +--hash=\S+(?: \\)?\n)+)",
    re.M,
)
# Permissive ones, and weak copyleft of libraries that stay files of their own.
ALLOWED = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python-2|Python Software|MPL|Mozilla|LGPL|0BSD|Unlicense|Zlib|"
    r"PostgreSQL|CC0|HPND|BlueOak",
    re.I,
)
CLASSIFIER = "License :: OSI Approved :: "


def components(lock: str) -> list[dict[str, Any]]:
    """The packages of a lock file."""
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "licenses": [{"license": {"name": licence(name)}}],
        }
        for name, version, _ in ENTRY.findall(lock)
    ]


def licence(name: str) -> str:
    """What an installed package says of its licence; "unknown" for one of another system."""
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return "unknown"
    classifiers = [one for one in found.get_all("Classifier") or () if one.startswith(CLASSIFIER)]
    said = found.get("License-Expression") or ""
    if not said and classifiers:
        said = " AND ".join(sorted(one.removeprefix(CLASSIFIER) for one in classifiers))
    return said or (found.get("License") or "unknown").strip().partition("\n")[0]


def document(lock: str) -> dict[str, Any]:
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "toolgate"}},
        "components": components(lock),
    }


def doubtful(found: dict[str, Any]) -> list[str]:
    """Packages with a licence that is not on the list."""
    named = {one["name"]: one["licenses"][0]["license"]["name"] for one in found["components"]}
    return [
        f"{name}: {said}"
        for name, said in named.items()
        if said != "unknown" and not ALLOWED.search(said)
    ]


if __name__ == "__main__":
    made = document(LOCK.read_text())
    SBOM.write_text(json.dumps(made, indent=1) + "\n")
    sys.exit("\n".join(doubtful(made)) or None)
