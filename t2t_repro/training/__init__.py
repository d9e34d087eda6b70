"""Modules that train a model: learning rate, loss, training step, loop, checkpoints, evaluation and
logs.
"""
