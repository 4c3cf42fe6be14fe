"""Whether rows were used in a fit."""
