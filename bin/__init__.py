"""The command-line programs. Only this package reads flags; each `main` then calls functions of the other packages."""
