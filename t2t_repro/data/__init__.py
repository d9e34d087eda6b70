"""Turns text into batches of ids for training, by way of a vocabulary, record files and a plan of the steps."""
