"""The file results.json: one flat record per posterior."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import files
from ..diagnostics.comparison import Comparison
from ..display.json_values import json_value
from ..posterior.averaging import Average
from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short


def rows_of(
    comparison: Comparison,
    posteriors: Mapping[str, Posterior | Average],
    names: Mapping[str, tuple[str, str]],
) -> list[dict[str, Any]]:
    """Return one flat record per posterior.

    A record holds the model, the method (and the name of the posterior, where it is another than
    these two), whether the fit was interrupted, the numbers of the comparison with their verdicts
    and reasons, the band of the conformal coverage, the guarantee, and the warnings.

    Args:
        comparison: The comparison of the posteriors.
        posteriors: The posteriors by name.
        names: The pair ``(model, method)`` of each posterior.
    """
    rows = []
    for label, values in comparison.to_frame().iterrows():
        name = str(label)
        model, how = names[name]
        region = comparison.regions.get(name)
        row: dict[str, Any] = {"model": model, "how": how}
        if name != f"{model} {how}":
            row = {"posterior": name, **row}
        row["interrupted"] = cut_short(posteriors[name].stats)
        row |= {str(key): _known(value) for key, value in values.items()}
        if region is not None:
            row["conformal_band"] = comparison.coverage_bands.get(name)
        row["guarantee"] = region.guarantee if region else None
        row["warnings"] = list(posteriors[name].warnings)
        rows.append(row)
    return rows


def write_results(out: Path, rows: list[dict[str, Any]], **about: Any) -> Path:
    """Write results.json and return its path.

    Args:
        out: The folder, which is made if it is missing.
        rows: One flat record per row of the printed table.
        **about: What was run.

    Raises:
        StorageError: If the file cannot be written.
    """
    content = json_value({**about, "rows": rows})
    return files.write(out / "results.json", json.dumps(content, indent=2) + "\n", folder=True)


def _known(value: Any) -> Any:
    """Return an entry of a table as Python's number or text; None for NaN."""
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value
