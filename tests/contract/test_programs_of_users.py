"""Programs of Pyro's users: each is fitted, or refused by a sentence, as the documentation says."""

from __future__ import annotations

import pytest
from programs_of_users import PROGRAMS
from tool_modules import tool

programs, tables = tool("table_of_programs"), tool("tables_of_docs")
#: of every method and of what follows a fit, the cells of the page
PAGE: dict[str, dict[str, str]] = tables.rows_of(tables.in_docs(programs.NAME))


def test_the_page_names_the_programs_that_there_are() -> None:
    assert list(PAGE) == list(PROGRAMS)
    assert len(PROGRAMS) >= 40
    for name, row in PAGE.items():
        assert row["kind"] == PROGRAMS[name][0]
        for cell in row.values():
            assert cell
            assert "not run" not in cell
            assert "Traceback" not in cell


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_fitted_or_refused_as_the_page_says(name: str) -> None:
    """With tiny budgets; an error that is not one of the library fails."""
    row = programs.outcomes(name, programs.QUICK, judged=False)
    for column in (*programs.METHODS, *programs.AFTER):
        refused = programs.is_refused(row[column])
        assert refused == programs.is_refused(PAGE[name][column]), (column, row[column])
        if not refused:
            assert row[column] == programs.OK
