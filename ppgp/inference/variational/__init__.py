"""Approximations fitted by maximising a bound."""
