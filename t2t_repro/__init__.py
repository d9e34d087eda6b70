"""The Transformer of "Attention Is All You Need" as tensor2tensor gave it, on TensorFlow 2 and Keras 3."""

__version__ = "0.1.0"
