"""The Transformer of "Attention Is All You Need", as implemented in tensor2tensor, for TensorFlow 2
and Keras 3.
"""

__version__ = "1.0.0"
