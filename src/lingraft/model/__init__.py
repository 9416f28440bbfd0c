"""The model room: the only one that knows transformers' classes."""
