"""What a program that embeds Mainspring may add to it: plugins, and copies of its state for others to read."""
