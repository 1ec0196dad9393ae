"""Django's own test runner on a small application. argv: `join` or `each` (authors by a join, or a query each), `rollback` or `commit`
(how a test is undone)."""

import os
import sys

import django
from django.conf import settings

os.environ["HOW"] = " ".join(sys.argv[1:])
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": "app.db", "TEST": {"NAME": "test.db"}}
settings.configure(
    DATABASES={"default": database},
    INSTALLED_APPS=["shop"],
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    USE_TZ=True,
)
django.setup()

from django.test.utils import get_runner  # noqa: E402

sys.exit(bool(get_runner(settings)(verbosity=0, interactive=False).run_tests(["shop.tests"])))
