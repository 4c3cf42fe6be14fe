"""Sparse and stochastic variational Gaussian processes with inducing inputs."""
