"""vertical.closed_scoring: all parties score new rows together, and nothing but the scores is opened.

Roles. All parties with data hold the same rows in the same order, each with its own columns, and their parts of one
model. The label holder gets the scores. The dealer has no data: it deals correlated randomness (`crypto.dealing`) and
gets none of the others' messages but seeds and sizes. It knows every mask, so nothing that the others say to each other
may pass through it. This is SecurePredict of MP-FedXGB (Xie et al.), for all trees at once.

    1  feature holder -> label holder   ReadyToScore     number of rows; which model its part is of
       label holder -> everybody        ScoresWanted     all fits together; numbers of rows and leaves
       label holder -> feature holder   QuestionsInTrees where its questions stand, if its part does not say so
       everybody -> dealer              Seed             32 random bytes, shared by the two
    2  dealer -> everybody              Dealt            corrections for a block of rows, uniform by themselves
    3  everybody but the dealer         MaskedWords      openings of masked bits, one message per round
    4  feature holder -> label holder   ScoreShare       its share of the score of each row
       label holder -> dealer           BlockDone        it may go on: it is never more than some blocks ahead

Steps 2 to 4 are repeated for every block of rows. Every party finds, for each of its rows and each leaf of every tree,
whether its own splits rule the leaf out: that is its private bit. On shares all bits of a row and leaf are multiplied,
in ceil(log2 M) rounds for M parties with data; one leaf of each tree is left. In one more round these bits are turned
into shares modulo 2**64 and multiplied by the leaves' values (`crypto.choosing`). The sum over all trees is opened to
the label holder alone.

A model of either kind can be scored. Where leaf values are shared (vertical.mp_fedxgb), each party has its share, and
knows the trees' shapes and its own splits in them. Otherwise the label holder has the trees: it tells each feature
holder where its handles stand, and enters the leaf values as its own, with 40 bits after the point. Each value is wrong
by 2**-41 at most then, and a score by that times the number of trees. Scores that do not fit 64 bits are refused.

What each ends up knowing. Label holder: the scores, and about which way rows go only what scores themselves tell.
Feature holder: how many rows were scored with which model, the shapes of the trees, and which of its own splits stand
where in them. From a training with vertical.secret_shared or vertical.mp_fedxgb it knew the trees' shapes and its
splits before; from one with vertical.bucket_rr or vertical.noised_gradients it did not know all of it, and learns it
here. Dealer: the numbers of rows and leaves, and how fast it goes.

Honest but curious parties. Any of them but the dealer may put together what they saw; they still lack the others' part
of every masked word. The dealer must not work together with anybody. A score has many digits: a label holder that knows
all leaf values can look for the leaves that add up to it, and where trees are few it will find them. Where leaf values
are shared it cannot, but equal scores are mostly equal leaves. And a feature holder is told by the label holder where
its questions stand: that these are the trees of the training is taken on trust.
"""
