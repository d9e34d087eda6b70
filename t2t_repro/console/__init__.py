"""Output for terminals: progress, tables, and no log messages of libraries."""
