"""Searches for a mode, and the Laplace approximation there."""
