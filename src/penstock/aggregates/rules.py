"""The rules of `penstock.agg`, by name."""

from __future__ import annotations

from penstock.aggregates.buckets import QUANTILES
from penstock.aggregates.moments import MEAN, VARIANCE
from penstock.aggregates.theta import DISTINCT

STATE_RULES = {rule.name: rule for rule in (MEAN, VARIANCE, DISTINCT, QUANTILES)}
