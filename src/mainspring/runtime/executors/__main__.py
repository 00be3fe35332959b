"""`python -m mainspring.runtime.executors 5`: the child process of a slot, which a node starts with a descriptor."""

from mainspring.runtime.executors.slot import main

main()
