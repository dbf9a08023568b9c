"""Readers of recordings, one file per format.

A reader is a function of a path, a protocol and a `reader.Reading`, registered by name with
`reader.register_reader`.
"""
