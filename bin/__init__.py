"""The programs. Flags are read here alone; each `main` calls ordinary functions of the engine."""
