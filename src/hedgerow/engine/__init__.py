"""Plain boosting: bins, losses, histograms, splits, growth, ensembles. Imports nothing of the other islands."""
