"""Programs that are no Python packages, for tests marked ``program``.

A test skips where its program is missing, saying how to install it; with PERFMODEL_REQUIRE_PROGRAMS=1 it fails instead.
"""

from __future__ import annotations

import functools
import html
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest

_TIMEOUT = 300

# 0 is "always recalculate"; where the item is absent or 1, LibreOffice gives back the cached numbers.
_ALWAYS_RECALCULATE = """\
<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load">
<prop oor:name="OOXMLRecalcMode" oor:op="fuse"><value>0</value></prop>
</item>
</oor:items>
"""


def _missing(what: str) -> NoReturn:
    if os.environ.get("PERFMODEL_REQUIRE_PROGRAMS") == "1":
        pytest.fail(what)
    pytest.skip(what)


def _find(title: str, names: Iterable[str], package: str) -> str:
    for name in names:
        if path := shutil.which(name):
            return path
    _missing(f"{title} is not installed: apt-get install {package}")


def libreoffice() -> str:
    return _find("LibreOffice Calc", ("soffice", "libreoffice"), "libreoffice-calc-nogui")


@functools.cache
def office_python() -> str:
    """Return the Python that LibreOffice can be driven from."""
    for path in ("/usr/bin/python3", shutil.which("python3") or "python3"):
        if not subprocess.run([path, "-c", "import uno"], capture_output=True, check=False).returncode:
            return path
    _missing("the Python module of LibreOffice is not installed: apt-get install python3-uno")


def node() -> str:
    return _find("Node.js", ("node", "nodejs"), "nodejs")


def chromium() -> str:
    return _find("Chromium", ("chromium", "chromium-browser", "google-chrome"), "chromium")


def _run(command: list[str], **more: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False, **more)
    assert done.returncode == 0, f"{command[0]} failed: {(done.stderr or done.stdout)[-2000:]}"
    return done.stdout


@functools.cache
def _office_profile() -> tempfile.TemporaryDirectory[str]:
    """Return a profile of our own, removed at exit: the first start fills it, the next ones are fast."""
    profile = tempfile.TemporaryDirectory(prefix="perfmodel-office-", ignore_cleanup_errors=True)
    user = Path(profile.name, "user")
    user.mkdir()
    (user / "registrymodifications.xcu").write_text(_ALWAYS_RECALCULATE)
    return profile


def _office() -> list[str]:
    profile = Path(_office_profile().name).as_uri()
    return [libreoffice(), "--headless", "--norestore", f"-env:UserInstallation={profile}"]


def drive_office(workbook: Path, steps: list[dict[str, Any]]) -> list[list[list[Any]]]:
    """Type into a workbook and return what ranges of it show, step by step; the file stays as it is.

    Each step has cells to ``set``, by ``SHEET.CELL``, and a range to ``read``, ``SHEET.A1:B2``.
    """
    python, pipe = office_python(), f"perfmodel-{os.getpid()}"
    office = subprocess.Popen([*_office(), f"--accept=pipe,name={pipe};urp;"], stdout=subprocess.DEVNULL)
    asked = {"pipe": pipe, "file": str(workbook.resolve()), "steps": steps}
    try:
        return json.loads(_run([python, str(Path(__file__).with_name("drive_office.py"))], input=json.dumps(asked)))
    finally:
        office.terminate()
        office.wait(timeout=_TIMEOUT)


def recalculate_all(workbooks: Iterable[Path], into: Path) -> list[Path]:
    """Let LibreOffice recalculate workbooks of different names, all in one start of the program."""
    files = list(workbooks)
    into.mkdir(parents=True, exist_ok=True)
    _run([*_office(), "--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", str(into), *map(str, files)])
    done = [into / f"{file.stem}.xlsx" for file in files]
    assert all(file.exists() for file in done), f"LibreOffice wrote only {sorted(into.iterdir())}"
    return done


def recalculate(xlsx: Path) -> Path:
    """Return a copy of a workbook, recalculated by LibreOffice."""
    (recalculated,) = recalculate_all([xlsx], xlsx.parent / "recalculated")
    return recalculated


def run_node(script: str) -> Any:
    """Return what the script hands to ``report``; what is not finite becomes None."""
    report = "const report = (value) => console.log(JSON.stringify(value));\n"
    return json.loads(_run([node(), "-"], input=report + script))


def run_chromium(script: str, folder: Path) -> Any:
    """Return what the script hands to ``report`` on a page; what is not finite becomes None."""
    report = "const report = (value) => { document.body.textContent = JSON.stringify(value); };\n"
    page = folder / "page.html"
    page.write_text(f"<!doctype html><meta charset='utf-8'><body><script>\n{report}{script}</script></body>")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000"]
    dom = _run([chromium(), *flags, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()])
    return json.loads(html.unescape(dom.partition("<body>")[2].partition("</body>")[0]))


#: What a browser asks for on its own account, switched off, and every host name unresolvable.
_OFFLINE = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
)


def open_offline(page: Path, folder: Path, at: str = "") -> tuple[str, list[str], list[str]]:
    """Open a page in Chromium with the network cut, at an anchor.

    Returns
    -------
    tuple of str, list of str, list of str
        The document once its scripts have run, the console's lines, and the addresses that the page asked for.
    """
    log = folder / "net.json"
    done = subprocess.run(
        [
            chromium(),
            *_OFFLINE,
            f"--user-data-dir={folder / 'profile'}",
            f"--log-net-log={log}",
            "--virtual-time-budget=30000",
            "--dump-dom",
            page.as_uri() + at,
        ],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=True,
    )
    console = [line for line in done.stderr.splitlines() if ":CONSOLE:" in line]
    text = log.read_text(encoding="utf-8").rstrip()
    # A browser that ends at once leaves the log without its end.
    record = json.loads(text if text.endswith("}") and text.count("]") else text.rstrip(",") + "]}")
    events = [event.get("params") or {} for event in record["events"]]
    # Requests of the browser itself have no page behind them.
    asked = [
        event["url"]
        for event in events
        if event.get("url") and event.get("initiator", "not an origin") != "not an origin"
    ]
    return done.stdout, console, asked
