"""vertical.noised_gradients: columns are split; the label holder adds noise to gradients, all else follows from them.

Roles. The label holder has labels and columns of its own. Feature holders have columns of the same rows.

    1  feature holder -> label holder   ReadyToTrain     numbers of rows and columns
       label holder -> feature holder   GoAhead          all tables fit together
       label holder -> feature holder   LearningRows     number of classes, weights of rows, rows that are watched
    2  label holder -> feature holder   NoisyGradients   every row's gradient + discrete Gaussian noise, the same to all
    3  feature holder -> label holder   BestGains        per node of the level: gain of the best split of its columns
       label holder -> feature holder   Winners          per node: yours, somebody else's, or a leaf
    4  winner -> label holder           WhichWay         one bit per row of the nodes that it won, a handle per split
       label holder -> feature holder   Partition        one bit per row: the sides of all rows of the level

Steps 3 and 4 are repeated for every level of every tree. Every party holds the same gradients, sums its own columns,
and moves all rows alike, so sums of nodes, leaf values and scores are known to all without being sent.

Only the label is secret. A gradient is g = s(score) - y (logistic: p - y), and the score is known: it comes from trees
that were made of released numbers. So noise on g is noise on the label, one changed label moves one gradient by the
width of the label range (two classes: by 1; more: two gradients of its row by 1 each, sqrt(2) in L2), and T releases
cost mu = sqrt(T) width / sigma in Gaussian DP. Hessians depend on scores alone (logistic: p (1 - p)). Every party
computes them itself; noise on them would cost bytes and accuracy, and protect nothing. The base score comes from the
first release too. The label holder grows its own part of the trees, and its leaves, from the noisy gradients as well:
exact leaves would leak into all later gradients.

    per="run"      (default) step 2 happens once. All trees use the same noisy labels; the rest of the gradient follows
                   from the score. At the same mu each gradient has 1/sqrt(T) of the noise, and 1/T of the bytes.
    per="tree"     step 2 happens for every tree, with fresh noise.
    per="message"  as published: NoisyLevel, fresh noise on gradients and hessians at every level for every feature
                   holder, (epsilon, delta) for one message, exact leaves. Stamped PER MESSAGE; no total is claimed.
    epsilon=inf    no noise; StartWithoutNoise tells base score and label range. Stamped NOT PRIVATE. The trees are the
                   pooled engine's, bit for bit.

What each ends up knowing. Feature holders: noisy gradients, of every split that won (its own or not) which rows of the
node go right, all scores and leaf values that follow, and their own splits. Label holder: in addition the trees with
handles for foreign splits, whose each split is, and every feature holder's best gain in every node. Columns are not
protected by the noise: only labels are, and only towards feature holders.

Honest but curious parties. Feature holders who work together see the same noisy numbers and learn no more about labels
than one of them; about columns they learn what the label holder tells each. XGBoost-LDP (score="xgboost") and
FedXGBoost-LDP (score="first_order": every hessian counts as 1), with the accounting put right; where this differs from
the papers: docs/protocols/vertical_noised_gradients.md.
"""
