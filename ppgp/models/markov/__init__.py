"""Gaussian processes on a line as Markov processes, by Kalman filters."""
