"""Messages on their way: what a node does about outboxes."""
