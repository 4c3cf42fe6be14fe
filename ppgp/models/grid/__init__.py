"""Gaussian processes on grids: complete ones, and structured kernel interpolation."""
