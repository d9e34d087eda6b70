"""Metrics that score outputs against references, and published test sets."""
