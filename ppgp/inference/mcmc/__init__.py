"""Markov chain Monte Carlo: samplers written here, nutpie's and Pyro's."""
