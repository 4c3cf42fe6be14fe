"""Exact Gaussian processes and kriging."""
