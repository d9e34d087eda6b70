"""Scores of translations, and published test sets to score on."""
