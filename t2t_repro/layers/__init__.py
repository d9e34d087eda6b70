"""The paper's building blocks, one idea a file, written with keras.ops alone."""
