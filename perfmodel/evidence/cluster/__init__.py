"""A cluster of one's own: its runs against the model, what they say of its numbers, and which runs say most."""
