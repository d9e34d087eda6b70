"""Hypothesis settings for property tests: few examples, the same in every run, without a time limit
for each.
"""

import hypothesis

few = hypothesis.settings(max_examples=60, derandomize=True, database=None, deadline=None)
