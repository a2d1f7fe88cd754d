"""MaskedXGBoost: the paper's figures and table again, the published protocol beside those whose guarantees hold.

- datasets: name -> rows to train and to test, columns of the two parties, public bounds
- methods: one training, of all columns together or by the two parties; or one that is timed
- attacking: the attackers of the paper, and ours, on recorded runs
- active_sets, one_bit, masked_noise: the paper's guess of active sets and the bins of a column; the delta that really
  holds for one row; noise for both without a run
- cells: one cell is one training, one timing or one recorded run under attack; runs them, one JSON line each
- tables: one file per figure or table: which cells it needs, how they are shown
- page: writes docs/results/masked_xgboost.md between its markers, the plots, and the page in one file
"""
