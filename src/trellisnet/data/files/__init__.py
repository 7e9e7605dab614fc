"""Find and download data files, and cache what is built from them."""
