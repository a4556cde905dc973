"""Two kinds of machines for perfmodel; its entry points are in ``pyproject.toml``."""
