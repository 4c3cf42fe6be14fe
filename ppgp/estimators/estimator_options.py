"""Metadata of the conformal estimators: what goes to the estimator, and what to the splitter."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..runtime.libraries import settings_unchanged

with settings_unchanged():
    from sklearn import get_config
    from sklearn.model_selection import GroupKFold
    from sklearn.utils import _safe_indexing
    from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
    from sklearn.utils.validation import _check_method_params

__all__ = ["Options", "routing_of"]


def routing_of(owner: Any, estimator: Any, cv: Any) -> Any:
    """Return the routes of metadata of a conformal estimator."""
    mapping = MethodMapping()
    for method in ("fit", "predict"):
        mapping.add(caller=method, callee=method)
    mapping.add(caller="fit", callee="predict")
    if hasattr(estimator, "predict_proba"):
        mapping.add(caller="predict_proba", callee="predict_proba")
    splitter = cv if hasattr(cv, "get_metadata_routing") else GroupKFold()
    return (
        MetadataRouter(owner=owner)
        .add(estimator=estimator, method_mapping=mapping)
        .add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))
    )


@dataclass(frozen=True)
class Options:
    """Arguments beside X and y, by who takes them.

    Attributes:
        of_fit: Of ``fit`` of the estimator.
        of_predict: Of its ``predict``, at the same rows.
        groups: Of the splitter, or None.
    """

    of_fit: Mapping[str, Any] = field(default_factory=dict)
    of_predict: Mapping[str, Any] = field(default_factory=dict)
    groups: Any = None

    @staticmethod
    def of(owner: Any, estimator: Any, method: str, given: Mapping[str, Any]) -> Options:
        """Return what was given to a method, sorted.

        With scikit-learn's metadata routing, requests decide. Without it, ``groups`` of ``fit`` are
        those of the splitter, and everything else goes to the estimator: to ``fit``, and to
        ``predict`` what it takes by name.

        Args:
            owner: The conformal estimator.
            estimator: The one inside.
            method: "fit", "predict" or "predict_proba".
            given: What the method was given.
        """
        given = {name: value for name, value in given.items() if value is not None}
        if not given:
            return Options()
        if get_config().get("enable_metadata_routing"):
            routed = process_routing(owner, method, **given)
            of = routed.estimator
            if method != "fit":
                return Options(of_predict=of[method])
            return Options(of.fit, of.predict, routed.splitter.split.get("groups"))
        if method != "fit":
            return Options(of_predict=given)
        groups = given.pop("groups", None)
        known = inspect.signature(estimator.predict).parameters
        return Options(given, {k: v for k, v in given.items() if k in known}, groups)

    def at(self, X: Any, rows: Any) -> tuple[Any, dict[str, Any]]:
        """Return some rows of X (None: all), and the arguments of ``predict`` at these."""
        told = dict(self.of_predict)
        if rows is None:
            return X, told
        if told:
            told = _check_method_params(X, told, indices=rows)
        return _safe_indexing(X, rows), told
