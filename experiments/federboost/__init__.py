"""FederBoost, columns split between parties: the paper's figures and times again, with `vertical.bucket_rr`.

- datasets: name -> numbers and labels; who has which columns; training and test rows; edges in round numbers
- methods: one training: of all columns together, of the label holder's alone, or by the parties
- cells: one cell is one training; runs them, one JSON line each
- tables: one file per figure or table: which cells it needs, how they are shown
- page: writes docs/results/federboost.md between its markers, the plots, and the page in one file
"""
