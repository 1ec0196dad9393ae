pytest_plugins = ["fathom_io.pytest_plugin"]
