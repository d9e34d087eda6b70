"""How a model is trained: schedule, loss, step, loop, checkpoints, evaluation."""
