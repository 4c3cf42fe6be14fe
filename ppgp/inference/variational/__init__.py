"""Variational inference: approximations that maximise a bound of the log evidence."""
