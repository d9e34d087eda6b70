"""How outputs are scored."""
