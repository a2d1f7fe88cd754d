"""Several parties from one Python program: matching rows, training, and the models that come of it."""
