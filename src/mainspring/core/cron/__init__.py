"""The arithmetic of cron expressions: reading them, finding their slots in a zone, saying them in English."""
