"""The model folder and its checkpoints: writing, finding, reading and averaging them."""
