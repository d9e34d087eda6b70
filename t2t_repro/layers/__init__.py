"""The building blocks of the paper, one idea per file, written with keras.ops only."""
