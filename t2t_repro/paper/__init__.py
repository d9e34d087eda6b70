"""The paper's tables, the comparison of our results with them, and the program that reproduces a row."""
