"""Sequences with an answer each: pixels, stress tests of memory, and the user's own series."""
