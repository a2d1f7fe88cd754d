"""vertical.masked_gradients: MaskedXGBoost as it was published, with gradients behind noise that their receiver made.

It is here to be measured and attacked. Who wants to train uses vertical.noised_gradients, where the label holder makes
the noise, or a protocol on shares.

Roles. The label holder (the paper's active party) has labels and columns of its own. Feature holders (passive parties)
have columns of the same rows.

    1  feature holder -> label holder   ReadyToTrain     numbers of rows and columns
       label holder -> feature holder   GoAhead          all tables fit together
       label holder -> feature holder   LearningRows     number of classes, weights of rows, rows that are watched
       label holder -> feature holder   Scales           units of gradients
    2  feature holder -> label holder   NoiseVectors     of some candidates: W noise vectors B over the level's rows
       label holder -> feature holder   MaskedGradients  g + B c and h + B d for each of these; G and H of every node
       (label holder -> feature holder  NextVectors      where the vectors of one candidate take several messages)
    3  feature holder -> label holder   BestScores       per node of the level: the score of its best candidate
       label holder -> feature holder   Winners          per node: yours, somebody else's, or a leaf
    4  winner -> label holder           WhichWay         one bit per row of the nodes that it won, a handle per split
       label holder -> feature holder   Partition        one bit per row: the sides of all rows of the level

Step 2 is repeated until all candidates of the level are done, steps 2 to 4 for every level of every tree, all nodes of
a level together. A candidate is a cut of a column; its active set in a node is the rows it sends left. In each node B
is a chain of differences around the active set, whose sum is 0 (strength sigma1), and independent noise (sigma2); the
label holder's c and d are random points with |c|^2 = |d|^2 = C. The feature holder sums g + B c over the active set,
where the first part vanishes. The label holder scores its own columns exactly, and leaf values are exact.

Vectors are float32 on the wire, gradients in the engine's whole-number units, which float32 holds exactly: with C = 0
the trees are the pooled engine's, bit for bit. Messages hold as many candidates as block_bytes allows.

What each ends up knowing. Feature holders: every row's gradient, hence every label, because they know B and can take it
off by least squares; the exact sums of gradients and hessians of every node; of every split that won which rows of the
node go right; their own splits. Label holder: the trees with handles for foreign splits and whose each is, which rows
each of them sends right, every feature holder's best noisy score in every node and its number of candidates; and of
candidates that did not win noise in which neighbours are correlated along the active set: over many trees, at the
ratios sigma1 / sigma2 where the method is of use, that shows the active sets too.

Honest but curious parties. The paper claims differential privacy for both sides. For labels that is false: given B, no
(epsilon, delta) with delta < 1 holds, and the attack is one line of linear algebra. The label holder runs it on the
first message of its own run, and the statement prints what came out. With W = 1, c is plus or minus sqrt(C), and even
two guesses are enough. docs/protocols/vertical_masked_gradients.md has the theorems, with their errors put right.
"""
