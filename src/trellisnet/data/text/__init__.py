"""Text as token ids: benchmark corpora, Python's own library, and the user's own text."""
