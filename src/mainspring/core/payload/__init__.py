"""The inside of `core/codec.py`: how declared types are read, values checked against them, and misfits told."""
