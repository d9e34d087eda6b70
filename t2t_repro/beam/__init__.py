"""Decoding, augmented text and training data on many machines, with Apache Beam."""
