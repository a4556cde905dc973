"""Shared by all tests; that it lies here puts this folder on the path, so that ``import programs`` works."""

import os
import tempfile

#: Compiled programs of tests are theirs alone, also in the processes that they start.
_COMPILED = tempfile.TemporaryDirectory(prefix="perfmodel-compiled-")
os.environ.setdefault("PERFMODEL_CACHE", _COMPILED.name)
