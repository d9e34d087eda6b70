"""Getting text: download, verify and unpack archives, and read parallel files."""
