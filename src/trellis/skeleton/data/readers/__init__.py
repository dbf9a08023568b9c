"""Readers of recordings, one file per format.

A reader is a function of a path, a protocol and a :class:`.reader.Reading`, registered by name
with :func:`.reader.register_reader`.
"""
