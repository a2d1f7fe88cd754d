"""The policy smooth_then_trees of vertical.private_histograms: the recipe of `central.gaussian`, answered on shares.

    label holder                         feature holders                          dealer
    asks (a request, which is public)    answer together with the label holder    deals masks, sines and noise ahead

Which sums are asked for, in which order and with how much noise follows from the job and public sizes (`schedule`).
All parties derive it by themselves, the dealer too, who is told sizes and nothing that was released.

1. `smooth_columns`: everybody says which columns of the public schema it has. `smooth_sizes`: and tells the dealer.
2. `smooth_asked` "counts": everybody sends `smooth_counts`, rows in public cells of its columns, with noise of its own.
3. `smooth_asked` "positives": `smooth_positives`, shares of the number of positive rows with dealt noise.
4. The first request with bins: everybody sends its columns under masks, once (`vertical.shared_rows.masked_bins`).
5. Each further request: what is due is added to shares of scores, gradients are made of them (`series`), added up over
   bins of a column or leaves of a tree (`groups`), and opened with dealt noise: `smooth_bin_sums`, `smooth_leaf_sums`,
   in the end `smooth_mean`.
6. `smooth_questions`: each feature holder is told the splits by its own columns.

What is opened are noisy sums and nothing else; tables, trees and leaf values follow from them, and all parties know
them. Who adds a column's table to scores is the owner of the column, to its own share: nothing is sent for it. Labels
are added to gradients by the label holder, to its own share as well.

Order of the modules: `series` (gradients), `schedule` (what is due, and the questions), `groups` (leaves), `holder`.
Messages, a party's columns and the dealer are with those of grown trees.
"""
