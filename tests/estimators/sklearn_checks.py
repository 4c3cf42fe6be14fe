"""The checks that scikit-learn has for estimators."""

from __future__ import annotations

from typing import Any
from unittest import SkipTest

from sklearn.utils.estimator_checks import estimator_checks_generator


def number_passed(estimator: Any) -> int:
    """Return how many checks an estimator passes, where one that fails raises its error."""
    passed = 0
    for instance, check in estimator_checks_generator(estimator):
        try:
            check(instance)
            passed += 1
        except SkipTest:  # the check does not apply, or needs a package that is not installed
            continue
    return passed
