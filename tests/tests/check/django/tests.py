import os

from django.test import TestCase, TransactionTestCase

from .models import Author, Book

HOW = os.environ["HOW"]
# The changes of a TransactionTestCase are committed, and then undone by flushing all tables.
Base = TransactionTestCase if "commit" in HOW else TestCase


class Shop(Base):
    def setUp(self):
        for n in range(5):
            Book.objects.create(author=Author.objects.create(name="a%d" % n), title="b")

    def test_authors(self):
        books = Book.objects.all() if "each" in HOW else Book.objects.select_related("author")
        self.assertEqual(len({book.author.name for book in books}), 5)

    def test_count(self):
        self.assertEqual(Book.objects.count(), 5)
