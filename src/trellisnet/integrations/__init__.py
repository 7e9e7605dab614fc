"""Other libraries on top of models and training; each is an extra, imported when it is used."""
