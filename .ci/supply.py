"""What a release is built from: ``lock`` writes hashed pins, ``sbom WHEEL`` a bill of materials (CycloneDX 1.6).

Run ``lock`` with Python 3.11 after a change of constraints.txt.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / ".ci" / "requirements-release.txt"
PINNED = re.compile(r"^(\S+)==(\S+) --hash=sha256:(\w+)$", re.MULTILINE)


def lock() -> None:
    """Write the pins of what a wheel needs to be built and to run, with the hash of each file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"], "build"]
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        asked = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", report.name]
        subprocess.run([sys.executable, "-m", "pip", *asked, "-c", ROOT / "constraints.txt", *needed], check=True)
        found = json.loads(Path(report.name).read_text("utf-8"))["install"]
    pins = sorted(
        f"{each['metadata']['name']}=={each['metadata']['version']} --hash=sha256:"
        f"{each['download_info']['archive_info']['hashes']['sha256']}"
        for each in found
    )
    head = "# Written by `python .ci/supply.py lock` from constraints.txt, for CPython 3.11 on Linux x86-64.\n"
    LOCK.write_text(head + "\n".join(pins) + "\n", encoding="utf-8")


def sbom(wheel: Path) -> None:
    """Write the bill of materials of a wheel beside it."""
    name, version = wheel.name.split("-")[:2]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()

    def component(kind: str, name: str, version: str, digest: str) -> dict[str, object]:
        purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
        hashes = [{"alg": "SHA-256", "content": digest}]
        return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl, "hashes": hashes}

    whole = component("application", name, version, digest) | {"licenses": [{"license": {"id": "Apache-2.0"}}]}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(digest[:32])}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "component": whole,
        },
        "components": [component("library", *pin) for pin in PINNED.findall(LOCK.read_text("utf-8"))],
    }
    wheel.with_suffix(".cdx.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    lock() if sys.argv[1:] == ["lock"] else sbom(Path(sys.argv[2]))
