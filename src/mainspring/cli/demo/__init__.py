"""`mainspring demo`: jobs of every fate, in a SQLite file of their own, with real workers in real processes."""
