"""Vocabularies: subwords, words and bytes, in Python and as TensorFlow operations."""
