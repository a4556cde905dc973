import pytest

from perfmodel.tape import library


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of compiled programs of this test alone."""
    monkeypatch.setenv(library.FOLDER, str(tmp_path))
    tmp_path.chmod(0o700)
    library.folder.cache_clear()
    yield tmp_path
    library.folder.cache_clear()
