"""The collector sets old objects aside for a while, unless others have done so."""

from __future__ import annotations

import gc

import pytest

from ppgp.runtime.memory import only_new_garbage


@pytest.mark.parametrize(("frozen", "expected"), [(0, ["freeze", "unfreeze"]), (7, [])])
def test_old_objects_are_set_aside(
    frozen: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: calls.append("unfreeze"))
    with pytest.raises(ValueError, match="inside"), only_new_garbage():
        raise ValueError("inside")
    assert calls == expected
