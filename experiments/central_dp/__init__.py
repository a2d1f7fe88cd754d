"""Central differential privacy: the paper's figures and tables again, and the methods beside their peers.

- objective: what is measured: test error, RMSE, AUC
- datasets: name -> table, labels, public schema; how rows are split
- methods: name -> training under (epsilon, delta), scores of the test rows
- peer_methods: the same for other people's libraries; peer_child runs those that need another environment
- cells: one cell is one training; runs them, one JSON line each
- tables: one file per figure or table: which cells it needs, how they are shown
- show: means, Markdown tables, plots
- page: writes docs/results/central_dp.md, the plots and the self-contained page
"""
