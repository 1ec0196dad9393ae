"""What saving orders may cost."""

import pytest
from shop import Order, Shop


@pytest.fixture
def shop(tmp_path):
    one = Shop(str(tmp_path / "shop.db"))
    # The first transaction of a WAL also writes and syncs its header.
    one.save(Order("first"))
    yield one
    one.connection.close()


def test_save_syncs_once(shop, fathom):
    shop.save(Order("tea"))
    assert fathom.fsyncs == 1
    assert fathom.counts.by_kind["fdatasync WAL"] == 1


def test_many_orders_share_a_sync(shop, fathom):
    shop.save_all([Order(f"tea {n}") for n in range(100)])
    assert fathom.fsyncs == 1


def test_orders_saved_one_by_one_do_not(shop, fathom):
    for n in range(5):
        shop.save(Order(f"tea {n}"))
    assert fathom.fsyncs == 5


def test_statements_are_tagged_with_the_test(shop, fathom):
    shop.save(Order("tea"))
    statements = [one.sql.strip() for one in fathom.queries]
    assert statements[0].startswith("BEGIN") and statements[-1] == "COMMIT"
    assert statements[1] == "INSERT INTO orders VALUES ('tea') /*test='test_statements_are_tagged_with_the_test'*/"


def test_reading_syncs_nothing(shop, fathom):
    assert len(shop.connection.execute("SELECT * FROM orders").fetchall()) == 1
    assert fathom.fsyncs == 0 and fathom.bytes_written == 0
