"""The mathematics of trellis networks; knows nothing of tasks."""
