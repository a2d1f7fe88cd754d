"""vertical.secret_shared: columns are split; trees grow on secret shares, and only the winners of nodes are opened.

Roles. The label holder has labels and columns of its own. Feature holders have columns of the same rows. The dealer has
no data: it deals correlated randomness (`crypto.dealing`), ahead of the others, and gets none of their messages but
seeds and sizes. It knows every mask, so nothing that the others say to each other may pass through it.

    1  feature holder -> label holder   ReadyToTrain     numbers of rows and columns
       label holder -> feature holder   GoAhead          all tables fit together
    2  feature holder -> label holder   ColumnShapes     bins or levels of each column, and whether values are missing
       label holder -> everybody        Sizes            rows, classes, the size of weights; of each feature holder the
                                                         number of possible splits
       everybody -> dealer              Seed             32 random bytes, shared by the two
    3  feature holder -> label holder   MaskedColumns    E = X - A: its one-hot bins under a mask, in blocks of rows
    4  dealer -> everybody              Dealt            corrections for one step of a level, uniform by themselves
    5  label holder -> feature holder   LevelInput       F = y - B: masked gradients of the rows of each left child,
                                                         and which rows each node has, under one-bit masks
    6  everybody but the dealer         MaskedWords      openings of masked words, one message per round: sums of all
                                                         possible splits are lifted, gains compared in a tournament
       everybody but the dealer         WinnerShare      shares of each node's winning handle, which all then know
    7  winner -> label holder           WhichWay         masked sides of all rows, of which the label holder can read
                                                         those of the node's rows; and a number for the question
       label holder -> feature holder   NodesKept        if leaves are limited: which nodes split after all
       everybody but the dealer         GroupsAsked      with interaction constraints: what splits rule out below them
       label holder -> dealer           LevelDone        it may go on: it is never more than some levels ahead
    8  label holder -> everybody        Onward           with early stopping, after an iteration: does it go on?

Steps 4 to 7 are repeated for every level of every tree, all nodes of a level together. A histogram X y is X F + E B +
A B: the owner of X has the first term, the label holder the second, and the third is dealt to both as shares. Right
children are differences of shares. The label holder knows the rows of every node in the end, so it finds the best split
of its own columns, and whether stopping is better, in the clear, and enters that as one candidate; it comes first, and
of equal candidates the first wins. Handles are drawn by the owner of a candidate, anew for each node: an opened handle
names the owner of the winner, or the label holder, or stopping, and nothing else.

Levels of a feature holder's column are split one against all others: which order gradients put them into nobody may
know. Rows that are watched for early stopping, that have weight 0 or are not drawn for a tree walk down it with all
others, and their masked gradients are masks of 0: no feature holder can tell them apart. Columns that are not drawn, or
kept apart from a node, stay in the tournament with nothing on their left side (`allowed`). Where children must have a
weight or a number of rows, both sides of each possible split are compared with that, and what is too light is set to
nothing on the left, before gains are computed (`crypto.limits`): nothing is opened, for 4 rounds more.

The trees are those of the pooled engine with the parameters of `Scales.boosting`, bit for bit, with the label holder's
columns first and then those of the feature holders in the order of the job; a column may be with several parties. These
parameters say that missing values that no row of a node had go right, because nobody knows which side of a foreign
split is heavier. The engine rounds gains to 64-bit floats and here nothing is rounded: splits whose gains differ in the
last bit of a float, or just reach `min_gain` there, are all that may come out otherwise.

What each ends up knowing. Everybody but the dealer: the shape of each tree, and of each split whose column it is, the
label holder's or which feature holder's. Feature holders: in addition which of their own splits won where, and how many
possible splits each other one has. Label holder: in addition the trees with handles for foreign splits, leaf values,
the rows of every node (hence which way each foreign split sends the rows of its node), which questions are asked more
than once, and the number of bins of each foreign column, whether they are levels and whether it has gaps; where leaves
are limited, also which way a split would have sent the rows of a node for which there was no room. Dealer: the numbers
of rows, bins, classes and possible splits, and how fast it goes. Gradients, labels, sums, gains and values of columns
are opened to nobody. What more everybody learns if a job asks for it: whether training goes on (early stopping), the
sum of weights rounded up to a power of two, everybody's number of columns (draws of columns, interaction constraints),
which groups hold the column of a split (interaction constraints), which nodes gain most (`max_leaf_nodes`).

Honest but curious parties. Any of them but the dealer may put together what they saw; feature holders together still
lack the label holder's part of every sum, and label holder and some feature holders that of the others. The dealer must
not work together with anybody.
"""
