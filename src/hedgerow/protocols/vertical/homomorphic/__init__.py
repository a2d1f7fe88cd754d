"""vertical.homomorphic: columns are split; feature holders add up gradients that they cannot read.

Roles. The label holder has labels, columns of its own, and all keys. Feature holders have columns of the same rows.

    1  feature holder -> label holder   ReadyToTrain     numbers of rows and columns
       label holder -> feature holder   GoAhead          all tables fit together
       label holder -> feature holder   Classes          how many there are, if the labels are classes
    2  label holder -> feature holder   PublicKey        once, where the scheme has one for the whole run
       label holder -> feature holder   RowPoints        a random point per row, once; with fresh_randomness every tree
    3  feature holder -> label holder   ColumnOrder      its columns' numbers of bins, in an order of this tree's
       label holder -> feature holder   TreeKeys         two public keys, new for every tree
       label holder -> feature holder   EncryptedRows    gradient and hessian of every row, encrypted
    4  label holder -> feature holder   NodeTotals       the sums of nodes to be summed, encrypted
       feature holder -> label holder   EncryptedSums    per such node, column and bin: the encrypted sum, unlinkable
    5  label holder -> feature holder   Winners          per node: yours, somebody else's, or a leaf
       label holder -> winner           YourSplits       per node that it won: which column (by its place), which bins
       winner -> label holder           WhichWay         one bit per row of the nodes that it won, a handle per split
       label holder -> feature holder   Partition        one bit per row: the sides of all rows of the level

Steps 4 and 5 are repeated for every level of every tree. Of two children only the smaller one is summed; the label
holder finds the other by subtraction. It finds the best split of every column from the sums, as if the columns were its
own, so the trees are the pooled engine's, bit for bit. Where columns of one feature holder are equally good, it names
all of them, and the owner takes the first, as one table would. Of more than two classes each has a tree per iteration,
all from the same scores, with keys of its own under the same points. Weights of rows are in their gradients.

What each ends up knowing. Label holder: the exact sums of gradients and hessians of every bin of every column in every
node, in an order of columns that is another one in every tree (numbers of bins and sums link them); which rows go which
way; whose each split is. It knows every single gradient, so sums over few rows tell which rows they are, and sums of
many trees tell more. Feature holders: the rows of every node, from which labels can be guessed, and their own splits;
the number of classes; no gradient, no weight, no sum, no gain, no leaf value.

min_rows_per_sum=k: children are summed and split further only if both have k rows, the root only if it has; where
nothing is summed step 4 is left out. min_samples_leaf: step 4 ends with BinCounts, numbers of rows. Draws of columns
and constraints: ColumnOrder has the owner's own order. Early stopping: rows that are watched are encrypted as 0, and
Onward says after each iteration whether it goes on. dp=(epsilon, delta): step 4 ends with NoisySums, sums with noise of
the feature holder inside the ciphertext, over bins that follow from a public schema. Which way rows go stays exact, so
what holds is a guarantee for values that no split tells apart (noisy_sums.py).

Without dp nothing is differentially private, and with it the model is not. What protects is that feature holders have
no key (crypto/elgamal.py: decisional Diffie-Hellman, honest but curious parties). vertical.secret_shared opens no sums;
vertical.noised_gradients and vertical.private_histograms have guarantees about what the model and the messages give
away.
"""
