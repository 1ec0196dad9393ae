"""The same with SQLAlchemy."""

import pytest

sqlalchemy = pytest.importorskip("sqlalchemy")
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column  # noqa: E402

import fathom_io.sqlalchemy  # noqa: E402


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@pytest.fixture
def engine(tmp_path):
    one = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/shop.db")
    fathom_io.sqlalchemy.instrument(one)
    with one.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    Base.metadata.create_all(one)
    yield one
    one.dispose()


def test_a_session_commits_once(engine, fathom):
    with Session(engine) as session:
        session.add_all([Order(item=f"tea {n}") for n in range(10)])
        session.commit()
    assert fathom.fsyncs == 1


def test_statements_are_tagged_with_the_test(engine, fathom):
    with Session(engine) as session:
        session.add(Order(item="tea"))
        session.commit()
    inserted, committed = [one.sql for one in fathom.queries]
    assert inserted == "INSERT INTO orders (item) VALUES (?) /*test='test_statements_are_tagged_with_the_test'*/"
    assert committed == "COMMIT"
