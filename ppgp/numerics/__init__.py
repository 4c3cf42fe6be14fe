"""Numerical methods independent of any model: linear algebra, quadrature, memory, threads."""
