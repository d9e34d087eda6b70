"""Training: schedule, loss, step, loop, checkpoints, evaluation, logs."""
