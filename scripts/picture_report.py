"""Take a picture of a report or a comparison, as it is shown in the docs; it needs chromium or chrome.

python scripts/picture_report.py REPORT.html OUT.png [--width 1200] [--height 1400] [--dark]
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BINARIES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS_FOR_CHARTS = 10


def take_picture(page: Path, to: Path, *, width: int, height: int, dark: bool = False) -> None:
    """Write a PNG of the top of a page."""
    binary = next(filter(None, map(shutil.which, BINARIES)), None)
    if binary is None:
        sys.exit(f"none of {', '.join(BINARIES)} is installed")
    if not page.is_file():
        sys.exit(f"{page} is not there; write it with: lingraft report RUN -o {page}")
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        command = [
            binary, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--disable-background-networking", f"--user-data-dir={profile}", f"--window-size={width},{height}",
            f"--virtual-time-budget={1000 * SECONDS_FOR_CHARTS}", f"--screenshot={to.resolve()}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            page.resolve().as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(f"{to}: {to.stat().st_size:,} bytes")


def main() -> None:
    """Read the arguments and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("report", type=Path, help="the page")
    parser.add_argument("to", type=Path, help="the picture to write")
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--height", type=int, default=1400)
    parser.add_argument("--dark", action="store_true", help="in the colours for dark screens")
    given = parser.parse_args()
    take_picture(given.report, given.to, width=given.width, height=given.height, dark=given.dark)


if __name__ == "__main__":
    main()
