"""Fitting a model to data: ``fit``, and what it checks before."""
