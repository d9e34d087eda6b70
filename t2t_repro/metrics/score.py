"""A score with the signature that says how it was computed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """One score of a whole text.

    Args:
        label: what was computed, for people.
        score: 0 to 100, higher is better.
        signature: how it was computed, in sacreBLEU's form of name:value pairs; equal signatures may be compared.
    """

    label: str
    score: float
    signature: str
