"""The version of the package, which answers and files carry."""

__version__ = "0.1.0"
