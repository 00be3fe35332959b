"""Pure rules: values in, values out. No I/O, no clock, no randomness; all three come in as arguments."""
