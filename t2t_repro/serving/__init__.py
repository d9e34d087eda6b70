"""The trained model for servers."""
