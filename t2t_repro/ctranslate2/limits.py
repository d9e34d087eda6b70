"""How long texts for CTranslate2 may be."""

POSITIONS = 2048
"""Minimum number of positions in the exported tables. CTranslate2 refuses texts with more tokens
than positions.
"""
