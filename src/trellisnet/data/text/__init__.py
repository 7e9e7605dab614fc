"""Text as numbered tokens: benchmark corpora, an embedded one, and the user's own."""
