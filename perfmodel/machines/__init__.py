"""How a kind of machine runs one forward step."""
