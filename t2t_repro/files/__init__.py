"""Files: atomic outputs, locks, text, JSON, and files that may be damaged or hostile."""
