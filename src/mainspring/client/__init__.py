"""What apps, tasks and handles stand on: the way to a store, what was declared, and how calls become jobs."""
