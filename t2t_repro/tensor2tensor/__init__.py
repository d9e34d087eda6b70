"""Importing models that tensor2tensor trained."""
