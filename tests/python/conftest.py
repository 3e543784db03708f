"""Tables are as wide as where their output is no terminal, wherever the tests run."""

import os

# pytest-xdist sets it in its workers, and the command line reads it when it is imported.
os.environ.pop("COLUMNS", None)
