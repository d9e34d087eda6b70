"""Models of Hugging Face's transformers: `MarianMTModel` (OPUS-MT)."""
