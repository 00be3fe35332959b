"""Messages on their way: what programs type beside `app.outbox`, and what a node does about outboxes."""

from mainspring.outbox.events import Counts, DeliveryEnded
from mainspring.outbox.message import Batch, Message, Outgoing
from mainspring.outbox.tuning import Tuning

__all__ = ["Batch", "Counts", "DeliveryEnded", "Message", "Outgoing", "Tuning"]
