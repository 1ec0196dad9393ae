"""The same with Django: a view, through its test client."""

import pytest

django = pytest.importorskip("django")
from django.conf import settings  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    path = tmp_path_factory.mktemp("django") / "shop.sqlite3"
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}},
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        MIDDLEWARE=["fathom_io.django.TagStatements"],
        ROOT_URLCONF="django_shop",
    )
    django.setup()
    from django.db import connection
    from django.test import Client
    from django_shop import Order

    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode=WAL")
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    yield Client()
    connection.close()


def test_a_request_syncs_once(site, fathom):
    # SQLite's default is to sync at each commit (synchronous=FULL).
    assert site.post("/orders/", {"item": "tea"}).status_code == 201
    assert fathom.fsyncs == 1


def test_statements_are_tagged_with_request_and_view(site, fathom):
    site.post("/orders/", {"item": "50 % tea"})
    (inserted,) = [one.sql for one in fathom.queries if one.sql.startswith("INSERT")]
    tags = "method='POST',path='%2Forders%2F',test='test_statements_are_tagged_with_request_and_view',view='new-order'"
    assert inserted.endswith(f"/*{tags}*/")
