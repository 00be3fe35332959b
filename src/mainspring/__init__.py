"""Mainspring runs background work that must not be lost."""
