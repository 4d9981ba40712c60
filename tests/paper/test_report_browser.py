"""The report in a real browser: no errors, no requests, every figure drawn, at either width."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from latentgamma.paper import report
from small_validation import small

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here: apt-get install chromium to run this test"
)

#: Put into the head of a copy of the page: it tells its frame what the browser sees.
PROBE = """
<script>
const refused = [];
addEventListener("securitypolicyviolation", event => refused.push(event.blockedURI));
addEventListener("load", () => {
  const box = one => { const r = one.getBoundingClientRect(); return [r.width, r.height]; };
  const seen = {
    width: innerWidth,
    page: document.documentElement.scrollWidth,
    figures: [...document.querySelectorAll("figure svg")].map(box),
    tables: document.querySelectorAll("table").length,
    requests: performance.getEntriesByType("resource").map(one => one.name), refused,
  };
  parent.postMessage(JSON.stringify(seen), "*");
});
</script>
"""


#: A headless window is never narrower than 500 pixels; a frame is as wide as it is told to be.
FRAME = """<!DOCTYPE html><title>frame</title><body>
<script>addEventListener("message", event => { document.body.dataset.seen = event.data; });</script>
<iframe src="report.html" width="WIDTH" height="900" style="border: 0"></iframe></body>
"""


def browse(page: Path, width: int, tmp_path: Path) -> tuple[dict[str, Any], str]:
    """What the browser saw of a page, and its log."""
    frame = page.with_name("frame.html")
    frame.write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,900",
        "--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom",
        frame.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'data-seen="([^"]+)"', done.stdout)
    assert found is not None, "the page's script did not run to its end"
    return json.loads(unescape(found[1])), done.stderr


def probed(tmp_path: Path, extra: str = "") -> Path:
    """The page with the probe in its head, and something more at its end; scripts are allowed."""
    page = tmp_path / "report.html"
    text = report.render_html(*small()).replace("<style>", PROBE + "<style>", 1)
    text = text.replace("style-src", "script-src 'unsafe-inline'; style-src", 1)
    page.write_text(text.replace("</body>", extra + "</body>"), encoding="utf-8")
    return page


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_works_in_a_browser(width: int, tmp_path: Path) -> None:
    seen, log = browse(probed(tmp_path), width, tmp_path)
    assert "CONSOLE" not in log, log
    assert seen["requests"] == seen["refused"] == []
    assert seen["width"] == width
    assert seen["page"] <= width, "the page scrolls sideways"
    assert len(seen["figures"]) == 4
    assert all(w > 250 and h > 30 for w, h in seen["figures"])


@pytest.mark.slow
def test_a_request_or_an_error_would_be_seen(tmp_path: Path) -> None:
    outside = (
        '<img src="https://fonts.googleapis.com/a.png"><script>nothing_of_this_name()</script>'
    )
    seen, log = browse(probed(tmp_path, outside), 1280, tmp_path)
    assert any("fonts.googleapis.com" in address for address in seen["refused"])
    assert "nothing_of_this_name is not defined" in log
    assert "CONSOLE" in log
