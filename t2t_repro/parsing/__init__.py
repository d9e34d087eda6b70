"""Constituency parsing: trees, their linearization, and EVALB's scores."""
