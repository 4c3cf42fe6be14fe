"""A browser without a window, which opens pages from the disk."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)


def chromium(
    page: Path, folder: Path, *options: str, query: str = ""
) -> subprocess.CompletedProcess[str]:
    """Open a page in a browser without a window."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"]
    command += ["--window-size=1200,3000", "--virtual-time-budget=10000"]
    command += [*options, page.as_uri() + query]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done
