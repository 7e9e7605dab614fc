"""Models for whole tasks, on any body: language models, classifiers and regressors, and their output heads."""
