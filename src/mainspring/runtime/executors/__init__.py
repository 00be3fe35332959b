"""Where a task's function is called: on the node's loop, in a thread of it, or in a process slot."""
