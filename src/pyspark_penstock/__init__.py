"""Lets Spark find `format("penstock")` by itself: it imports modules named `pyspark_...` and asks for this class."""

from __future__ import annotations

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
