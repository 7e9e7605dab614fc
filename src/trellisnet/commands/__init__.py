"""The commands of the command line, a typed function each."""
