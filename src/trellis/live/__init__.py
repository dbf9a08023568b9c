"""Gestures with a camera: a page that records them, trains a network, and recognises them live."""
