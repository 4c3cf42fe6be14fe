"""The command line, scikit-learn estimators, reports, and recipes by name."""
