"""What the border says when an input is wrong."""


class UserError(Exception):
    """An input that cannot be used; the message is one line that names the place and the fix."""
