"""A node: loops around the port."""
