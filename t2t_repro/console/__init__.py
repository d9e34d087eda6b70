"""What a person sees in a terminal: progress, tables, and no log messages of libraries."""
