"""vertical.private_histograms: trees grow on shares of rows, and everything that is opened has noise in it.

Labels are private towards feature holders, and columns towards the label holder and each other: nobody learns the rows
of a node, and what all learn about trees is differentially private. Noise is drawn by the dealer and added on shares.

Roles. The label holder has labels and columns. Feature holders have columns of the same rows. The dealer has no data:
it deals masks and noise, hears seeds and sizes, and must not work together with anybody.

    1  feature holder -> label holder   ReadyToTrain, and GoAhead back: all tables fit together
       everybody but the dealer         CountedColumns, ColumnSizes: how many bins there are, which follow from counts
                                        with noise of the owner; then SharingSeed, MaskedBins (as in vertical.mp_fedxgb)
       everybody -> dealer              Seed, AllColumns
       everybody but the dealer         ReleasesBegun    in a later attempt of a run that broke off: what was spent
       label holder -> dealer           StepsThatFit     likewise: how many trees there is room for
    2  dealer -> everybody              Dealt            corrections and shares of noise, uniform by themselves
    3  everybody but the dealer         StartShare       the noisy number of positive rows
       label holder -> feature holder   Chosen           the first score, which follows from it
    4  everybody but the dealer         MaskedWords      gradients from shared scores; masked rows of nodes; with
                                                         reveal="winner" a tournament of utilities with noise
    5  everybody but the dealer         WinnerShare      reveal="winner": the handle of the level's noisy winner
       everybody but the dealer         HistogramShare   reveal="histogram": noisy sums of the bins of two columns, and
                                                         before the first tree of all of them, whence columns and splits
    6  everybody but the dealer         LeafShare        noisy sums of the leaves; Chosen: their values
       label holder -> dealer           LevelDone        it may go on

Steps 4 and 5 are repeated for every level of every tree. All nodes of a level have the same split, that for which the
sum over nodes of |G_L| + |G_R| is largest: one row moves it by no more than its own gradient. The owner of the split
shares which rows go left, and nobody sees it. Scores of rows are shared: they are sums of leaf values that all know,
times shares of which leaf a row is in. So gradients depend on rows through what was released only.

With policy="smooth_then_trees" there are no choices on shares: tables of single columns and trees of random splits
follow from noisy sums alone (`smooth`), by messages of their own.

What the dealer is told are sizes, by everybody, and it refuses sizes that differ: how much noise it draws follows from
them and the job.

What each ends up knowing. Everybody but the dealer: the numbers of rows and columns and of their bins, whose split each
level is, leaf values and the first score (with reveal="histogram" all splits and noisy sums, with
policy="smooth_then_trees" the whole model), all of it with noise. Feature holders and label holder: in addition which
of their own splits won where. Dealer: sizes, and the noise of what it never sees.

Honest but curious parties. Any of them but the dealer may put together what they saw. The dealer must not work together
with anybody: it knows the noise. Which rows there are is known to all who matched them, and is not protected.
"""
