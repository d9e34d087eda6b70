"""The layers of the paper's model, one idea per file, written with keras.ops only."""
