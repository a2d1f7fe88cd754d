"""vertical.mp_fedxgb: MP-FedXGB as it was published, on secret shares, with the openings by which it compares splits.

It is here to be measured and attacked. What it opens gives away sums of labels and of columns (docs/attacks.md); who
wants to train uses vertical.secret_shared, which opens none of it and is faster.

Roles. The label holder (the paper's P1) has labels and columns. Feature holders have columns of the same rows; the
first of them (P2) opens numerators. The dealer (the paper's coordinator) has no data and deals correlated randomness.

    1  feature holder -> label holder   ReadyToTrain, and GoAhead back: all tables fit together
       everybody but the dealer         ColumnSizes      bins of each column, and whether values are missing, to all
       label holder -> dealer           AllColumns       the same of all columns
       everybody -> dealer              Seed             32 random bytes, shared by the two
       everybody but the dealer         SharingSeed      32 random bytes to each other: SHR
       everybody but the dealer         MaskedBins       E = X - A: one-hot bins under a mask, to all
    2  dealer -> everybody              Dealt            corrections for one step of a level, uniform by themselves
    3  everybody but the dealer         MaskedWords      F = y - B: gradients of the rows of each node, masked; sums of
                                                         all possible splits, lifted; products for the comparisons
    4  everybody -> feature holder      NumeratorShare   of each pair that is compared: opened to P2
       everybody -> label holder        DenominatorShare of each pair: opened to P1
       feature holder -> label holder   NumeratorSigns   which numerators are negative
       label holder -> feature holder   Better           which of each pair is better
    5  (4 once more, as TestNumeratorShare and TestDenominatorShare: does the winner gain anything?)
       then the owner of each winning split shares which rows go left (SHR, nothing is sent), and all multiply
    6  everybody -> label holder        StepShare        of each leaf H + lambda and a perturbation: opened to P1
       label holder -> feature holder   Steps            the same numbers: steps of gradient descent for the weights
    7  everybody -> label holder        PredictionShare  the tree's value for every row: opened to P1
       label holder -> dealer           LevelDone        it may go on

Steps 2 to 5 are repeated for every level of every tree, all nodes of a level together; 6 and 7 end a tree. Where the
paper shares floats, shares here are uniform in a ring, wide enough that every comparison is exact: numerators and
denominators are the paper's (its equation 7), as integers. Weights of leaves stay shared; they are right to about
one in a million, so later trees may differ from the pooled engine's in rare cases.

What each ends up knowing. Everybody but the dealer: of every column the number of bins, of every node which column and
bin it splits on, and of every leaf the sum H + lambda but for a perturbation of at most 2 lambda. First feature holder:
in addition all numerators, from which it computes sums of labels over its own buckets. Label holder: in addition all
denominators, from which it computes sums over the buckets of all others, and the value of every tree for every row,
hence the rows of every leaf. Dealer: sizes.

Honest but curious parties. The paper's claim is that numerators and denominators tell nothing. That is false, also for
one party alone: attacks.mp_fedxgb.argmax_opened computes exact sums from them. What does hold: shares alone are uniform
to any coalition without the dealer.
"""
