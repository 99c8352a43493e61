"""Record at a time, in Spark's real-time mode."""
