"""One small file per format: each turns files of people's making into recordings, or says why not.

Every reader is a function of a path, a protocol and a :class:`.reading.Reading`, which knows
whether what cannot be read is an error or is left out and counted.
"""
