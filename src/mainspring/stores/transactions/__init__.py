"""Joining transactions of the user's own: one file for each driver."""
