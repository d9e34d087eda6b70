"""Exports models for CTranslate2, a fast C++ engine."""
