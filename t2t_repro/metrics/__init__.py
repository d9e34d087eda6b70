"""Metrics that score a model's outputs against references, and a reader of published test sets."""
