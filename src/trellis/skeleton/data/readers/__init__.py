"""Readers of recordings, one file per format.

A reader is a function of a path, a protocol and a :class:`.reading.Reading`, registered by name
with :func:`.registry.register_reader`.
"""
