"""The paper's tables, the comparison of our results with them, and the stages that follow training
in t2t-reproduce.
"""
