"""Boosting: sums of learners that follow the natural gradient of a proper score."""
