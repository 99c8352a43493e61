"""Aggregates that merge: how mean, variance, distinct and quantiles are kept. People use them as `penstock.agg`."""
