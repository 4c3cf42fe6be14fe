"""Convergence statistics of draws."""
