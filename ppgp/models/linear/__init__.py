"""Linear, logistic and generalised linear models, and those with groups."""
