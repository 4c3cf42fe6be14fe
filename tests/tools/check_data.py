"""Compare a folder of data sets with the checksums in docs/data.md.

``python tests/tools/check_data.py [FOLDER]`` prints one line per file. FOLDER is by default the
folder that the variable PPGP_DATA names, or else ``data`` at the top of the repository. The exit
status is 1 if a file is missing or differs.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", re.MULTILINE)


def expected() -> dict[str, str]:
    """Return the checksum of each file in the table of docs/data.md."""
    return dict(ROW.findall((ROOT / "docs" / "data.md").read_text()))


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file.

    For an .npz file it is that of its arrays in the order of their names, each name followed by
    its uncompressed .npy file, so that the checksum does not depend on the compression.
    """
    if path.suffix != ".npz":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    digest = hashlib.sha256()
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            digest.update(name.encode())
            digest.update(archive.read(name))
    return digest.hexdigest()


def verdict(path: Path, wanted: str) -> str:
    """Return "ok", "missing" or "differs"."""
    if not path.is_file():
        return "missing"
    return "ok" if checksum(path) == wanted else "differs"


def main() -> int:
    default = os.environ.get("PPGP_DATA") or ROOT / "data"
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else default)
    verdicts = {name: verdict(folder / name, wanted) for name, wanted in expected().items()}
    for name, found in verdicts.items():
        print(f"{found:<8} {name}")
    return int(any(found != "ok" for found in verdicts.values()))


if __name__ == "__main__":
    sys.exit(main())
