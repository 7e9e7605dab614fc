"""From a recipe to a trained model: configuration, loop, checkpoints, distribution, reports."""
