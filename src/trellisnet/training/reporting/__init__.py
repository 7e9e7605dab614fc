"""What a run tells about itself when it is done: a page with curves and results."""
