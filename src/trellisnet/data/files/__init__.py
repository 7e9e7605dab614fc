"""Where data files come from, and where what is made of them is kept."""
