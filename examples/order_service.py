"""An order service: FastAPI takes orders, SQLAlchemy keeps them, and an outbox makes sure that the rest happens.

A request writes its order and publishes two messages in one transaction: all three are there, or none is. One message
is counted in the stock, exactly once, by a handler that works in a transaction of its own. The other becomes a job that
sends a mail.

    pip install '/path/to/this/checkout[postgres]' fastapi uvicorn sqlalchemy 'psycopg[binary]'
    python examples/order_service.py [URL] [PORT]

URL is sqlite:///shop.db if you say nothing; with postgresql://user@host/database it works the same. Then try:

    curl -X POST localhost:8000/orders -H 'Content-Type: application/json' \
         -d '{"customer": "ann", "article": "lamp", "quantity": 2}'
    curl localhost:8000/stock
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI, HTTPException
from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from mainspring import Mainspring, Message
from mainspring.stores.port import Transaction

URL = sys.argv[1] if len(sys.argv) > 1 else "sqlite:///shop.db"
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
ON_SQLITE = URL.startswith("sqlite:")
MOST = 100

engine = create_engine(URL.replace("postgresql:", "postgresql+psycopg:"))
app = Mainspring(URL)  # the same database: only then can one transaction take all


class Table(DeclarativeBase): ...


class Order(Table):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    article: Mapped[str]
    quantity: Mapped[int]


class Stock(Table):
    __tablename__ = "stock"
    article: Mapped[str] = mapped_column(primary_key=True)
    remaining: Mapped[int]


# What is told about an order, and to whom.


@dataclass
class OrderPlaced:
    order: int
    customer: str
    article: str
    quantity: int


orders = app.outbox("orders", payload=OrderPlaced)
mails = app.outbox("mails", payload=OrderPlaced)

# A handler's statements go to the driver as they are: sqlite3 writes parameters as ?, asyncpg as $1, $2.
COUNT = "UPDATE stock SET remaining = remaining - $1 WHERE article = $2"
COUNT_ON_SQLITE = "UPDATE stock SET remaining = remaining - ? WHERE article = ?"


@orders.handler(mode="transactional", profile="low_latency")
async def count(message: Message[OrderPlaced], tx: Transaction) -> None:
    """Take what was ordered out of the stock: committed together with the note that this message is done."""
    placed = message.payload
    await tx.execute(COUNT_ON_SQLITE if ON_SQLITE else COUNT, (placed.quantity, placed.article))


@app.task
async def send_mail(placed: OrderPlaced) -> None:
    print(f"mail to {placed.customer}: thank you for order {placed.order}", flush=True)


mails.to(send_mail, profile="low_latency")


# The service.


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    Table.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        if session.get(Stock, "lamp") is None:
            session.add(Stock(article="lamp", remaining=1000))
    async with app.node():  # delivers messages and runs jobs, here in the service itself
        yield


api = FastAPI(lifespan=lifespan)


@dataclass
class NewOrder:
    customer: str
    article: str
    quantity: int


@api.post("/orders", status_code=201)
def place(new: NewOrder) -> dict[str, int]:
    with Session(engine) as session, session.begin():  # committed before the answer is sent
        order = Order(customer=new.customer, article=new.article, quantity=new.quantity)
        session.add(order)
        session.flush()  # gives it its id
        placed = OrderPlaced(order.id, new.customer, new.article, new.quantity)
        orders.publish_sync(session, placed, key=new.article)
        mails.publish_sync(session, placed, key=new.customer)
        if new.quantity > MOST:  # too late? No: the order and both messages are rolled back
            raise HTTPException(422, f"nobody may have more than {MOST}")
        return {"order": order.id}


@api.get("/orders")
def placed_orders() -> list[int]:
    with Session(engine) as session:
        return list(session.scalars(select(Order.id).order_by(Order.id)))


@api.get("/stock")
def stock() -> dict[str, int]:
    with Session(engine) as session:
        return {one.article: one.remaining for one in session.scalars(select(Stock))}


if __name__ == "__main__":
    uvicorn.run(api, port=PORT, log_level="warning")
