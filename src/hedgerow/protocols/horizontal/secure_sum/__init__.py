"""horizontal.secure_sum: rows are split between owners; a coordinator sees only sums over all of them.

Roles. Owners 1..l hold rows with the same columns and their labels. The coordinator holds nothing, or is one of the
owners; then its own sums never leave it.

    1  owner -> coordinator   TableDescription     columns, types, levels, classes: must fit together
       (owner -> coordinator  EarlierModel, from one owner, only where training goes on from an earlier model)
       coordinator -> owner   Agreement            what all go by
       (both ways             OwnLabelRange, CommonLabelRange, only with exact_label_range=True)
    2  owner -> coordinator   MaskKey              X25519 key, signed with the owner's identity
       coordinator -> owner   MaskKeys             everybody's, passed on; each owner checks the signatures
       (both ways             MaskedWeights, CommonWeights, only where rows have weights: weights.py)
    3  owner -> coordinator   MaskedTotals         rows, label totals, values present per column
    4  coordinator -> owner   Probes               where to count next (at most 12 rounds, all features together)
       owner -> coordinator   MaskedCounts         rows below each probe
       coordinator -> owner   Start                edges of the bins, base score, number of rows
    5  coordinator -> owner   NextStep             splits of the last level, and which nodes to sum next
       owner -> coordinator   MaskedHistogram      gradient sums of the smaller children, all nodes of a level at once
       (owner -> coordinator  MaskedMetric, after each iteration, only with early stopping: watching.py)
       (both ways             SealedSeeds, RelayedSeeds, WhoSent, Unmasking: masks of the owners' own, masks.py)
    6  coordinator -> owner   FinishedModel        the whole model
       coordinator -> owner   NodeStatistics       only with share_cover=True or dp

Step 5 takes `max_depth` rounds per tree and one more for the first sum's masks: the first NextStep of a tree rides on
the last one of the tree before, and leaf values need no round of their own, because every split comes with the sums of
its two sides.

With quantiles="private" step 4 is one round: NoisyCells over public bounds, with noise inside the sum. With
dp=(epsilon, delta) steps 3 to 5 are replaced by the recipe of `protocols/central/gaussian`, each of whose releases is
one sum with every owner's noise inside (SumWanted, NoisySum).

What each ends up knowing. Owners: the model, the edges, base score and number of rows, everybody's levels and classes.
Coordinator: in addition the sums over all owners for every node of every tree, and the counts at the probes. A sum over
owners can still single out a record where one row is alone in a cell; `dp` is the answer to that, masking is not.

Honest but curious parties; the coordinator together with l - 1 owners learns the last one's sums. FederBoost (Tian et
al.), sections on horizontal training; where this differs from the paper: docs/protocols/horizontal_secure_sum.md.
"""
