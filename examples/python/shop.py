"""A small shop on SQLite."""

import dataclasses
import sqlite3

import fathom_io


@dataclasses.dataclass
class Order:
    item: str


class Shop:
    def __init__(self, path: str) -> None:
        self.connection: sqlite3.Connection = fathom_io.connect(path)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")
        self.connection.execute("CREATE TABLE orders (item TEXT)")

    def save(self, order: Order) -> None:
        with self.connection:
            self.connection.execute("INSERT INTO orders VALUES (?)", [order.item])

    def save_all(self, orders: list[Order]) -> None:
        """In one transaction: one sync for all of them."""
        with self.connection:
            self.connection.executemany("INSERT INTO orders VALUES (?)", [[order.item] for order in orders])
