"""Spark: set up well (`builder`), and topics as DataFrames (`read`) and as a source of its own (`source`, `stream`)."""

from __future__ import annotations

from penstock.spark.builder import session

__all__ = ["session"]
