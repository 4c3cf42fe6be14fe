"""Files that are written completely or not at all, checks of paths before the work, and locks.

Neither torch nor pandas is imported.
"""

from .atomic_replacement import replacing, replacing_path
from .json_lines import JsonLines
from .locks import locked
from .output_paths import (
    check_file,
    check_folder,
    check_regular,
    explained,
    is_stream,
    no_file,
    target_of,
)
from .periodic_saves import Saves
from .writing import append, write, write_figure

__all__ = [
    "JsonLines",
    "Saves",
    "append",
    "check_file",
    "check_folder",
    "check_regular",
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
