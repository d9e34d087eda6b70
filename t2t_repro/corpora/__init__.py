"""Functions that download, verify and unpack archives of text, and that read parallel files."""
