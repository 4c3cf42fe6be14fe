"""Files that are written completely or not at all, checks of paths before the work, and locks.

Neither torch nor pandas is imported.
"""

from .json_lines import JsonLines
from .locks import locked
from .output_paths import (
    SAVED,
    check_file,
    check_folder,
    check_regular,
    check_saved,
    explained,
    is_stream,
    no_file,
    target_of,
)
from .writing import Saves, append, replacing, replacing_path, write, write_figure

__all__ = [
    "SAVED",
    "JsonLines",
    "Saves",
    "append",
    "check_file",
    "check_folder",
    "check_regular",
    "check_saved",
    "explained",
    "is_stream",
    "locked",
    "no_file",
    "replacing",
    "replacing_path",
    "target_of",
    "write",
    "write_figure",
]
