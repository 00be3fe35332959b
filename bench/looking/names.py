"""What both stores are filled with, whichever way: the same tasks, queues, keys, tags, arguments and errors."""

from datetime import timedelta

from mainspring.core.job import NodeId
from mainspring.core.names import Name

NODE = NodeId("bench")
TASKS = [Name("shop", f"task-{number:02}") for number in range(19)]
RARE_TASK = Name("shop", "rare")
RARE = 5
"""So many jobs are of that task, the oldest of all; they alone have their queue and their key."""
QUEUES = [f"queue-{number}" for number in range(9)]
RARE_QUEUE, RARE_KEY = "rare", "rare"
KEYS = [f"customer-{number}" for number in range(20)]
TAG = "vip"
MESSAGE = "no such user: 4711"
LONG_AFTER = timedelta(days=300)
