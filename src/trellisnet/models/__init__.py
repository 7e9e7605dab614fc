"""What a trellis network is used for: language models, classifiers, regressors, and their output heads."""
