"""The version, in the one place that everything else reads."""

__all__ = ["__version__"]

__version__ = "0.1.0"
