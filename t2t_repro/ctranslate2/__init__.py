"""Exports models for CTranslate2, a fast C++ engine."""

POSITIONS = 2048
"""Minimum number of positions in the exported tables. CTranslate2 refuses texts with more tokens
than positions.
"""
