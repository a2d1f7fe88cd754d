"""MP-FedXGB: the paper's tables and figures again, with `vertical.secret_shared` and with the published protocol.

- datasets: name -> numbers and labels as the paper's own program prepares them; rows, columns of each party, buckets
- methods: one training: of all columns together, by the parties, or timed
- cells: one cell is one training (or one comparison, one attack); runs them, one JSON line each
- tables: one file per figure or table: which cells it needs, how they are shown
- equality: trees of the parties beside those of the pooled engine
- attacking: the attacks on what the published protocol opens, on real trainings
- page: writes docs/results/mp_fedxgb.md between its markers, the plots, and the page in one file

How data are prepared, where the paper does not say, was read off the authors' published program
(https://github.com/HikariX/MP-FedXGB). None of its code is here.
"""
