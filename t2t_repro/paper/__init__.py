"""The paper's tables: its figures, our measurements, and the commands that compare them."""
