"""Tools for testing what runs on Mainspring."""
