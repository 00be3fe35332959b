"""The inside of `core/codec.py`: how declared types are read, values written and compared, and misfits told."""
