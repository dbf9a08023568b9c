"""Adapters for other people's programs. Each is imported by its own name, and each is optional."""
