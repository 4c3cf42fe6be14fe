"""Distributions that likelihoods and predictions need, with their CDFs, quantiles and scores."""
