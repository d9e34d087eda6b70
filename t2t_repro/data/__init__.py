"""Modules that turn text into files of subword ids, and these files into batches for training."""
