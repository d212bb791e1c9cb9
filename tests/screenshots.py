"""Pictures of reports as people see them, a text dump, and what axe-core finds: ``just screenshots``.

Pages that are named after the folder and axe-core are looked at in place of two that are made here. It needs Debian's
``chromium``, ``chromium-driver``, ``poppler-utils`` and ``lynx``, the package ``selenium``, and the npm package
``axe-core``; it is not a test, since its pictures are there to be looked at.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from consilience.report import write_report
from report_cases import bad_site, sites_differ

WIDTHS = {"desktop": 1280, "phone": 390}
SCHEMES = ("light", "dark")
SERIOUS = ("serious", "critical")


def main(folder: Path, axe: Path, pages: Sequence[Path]) -> int:
    """Write everything into a folder; the number of serious findings of axe-core."""
    folder.mkdir(parents=True, exist_ok=True)
    script, found = script_of(axe), 0
    for page in [Path(shutil.copy(each, folder)) for each in pages] or made(folder):
        with driver() as browser:
            pictures(browser, page)
            found += findings(browser, page, script)
        subprocess.run(["pdftoppm", "-r", "60", "-png", page.with_suffix(".pdf"), page.with_suffix("")], check=True)
        text = subprocess.run(["lynx", "-dump", "-nolist", page], check=True, capture_output=True).stdout
        page.with_suffix(".txt").write_bytes(text)
    return found


def made(folder: Path) -> list[Path]:
    """Write two reports whose verdicts differ."""
    pages = {folder / "with-care.html": bad_site, folder / "do-not-use.html": sites_differ}
    for page, case in pages.items():
        write_report(case(), page, title="Length of stay in five hospitals")
    return list(pages)


def script_of(axe: Path) -> str:
    """Read axe-core from the archive of its npm package."""
    with tarfile.open(axe) as archive:
        return archive.extractfile("package/axe.min.js").read().decode()  # type: ignore[union-attr]


def driver() -> Any:
    """Start Debian's Chromium without a window."""
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for each in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(each)
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def pictures(browser: Any, page: Path) -> None:
    """Write pictures of the whole page by width and colour scheme, and its A4 pages as PDF."""
    for device, width in WIDTHS.items():
        for scheme in SCHEMES:
            media = {"media": "screen", "features": [{"name": "prefers-color-scheme", "value": scheme}]}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            shape = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": device == "phone"}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
            browser.get(page.resolve().as_uri())
            wanted = {"format": "png", "captureBeyondViewport": True}
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", wanted)
            page.with_name(f"{page.stem}-{device}-{scheme}.png").write_bytes(b64decode(shot["data"]))
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            print(f"{page.stem}, {device}, {scheme}: {wide} of {width} pixels wide")  # noqa: T201 - a command prints
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    made = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    page.with_suffix(".pdf").write_bytes(b64decode(made["data"]))


def findings(browser: Any, page: Path, script: str) -> int:
    """Run axe-core in the page, for which alone its security policy is set aside; the number of grave findings."""
    found = 0
    for scheme in SCHEMES:
        browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
        media = {"media": "screen", "features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        browser.get(page.resolve().as_uri())
        browser.execute_script(script)
        result = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        grave = [each for each in result["violations"] if each["impact"] in SERIOUS]
        page.with_name(f"{page.stem}-axe-{scheme}.json").write_text(json.dumps(result["violations"], indent=1))
        print(f"{page.stem}, {scheme}: {len(result['passes'])} rules of axe-core kept, {len(grave)} broken gravely")  # noqa: T201
        found += len(grave)
    return found


if __name__ == "__main__":
    sys.exit(bool(main(*map(Path, sys.argv[1:3]), [Path(each) for each in sys.argv[3:]])))
