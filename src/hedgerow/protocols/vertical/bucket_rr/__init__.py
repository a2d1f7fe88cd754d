"""vertical.bucket_rr: columns are split between parties; each sends randomised buckets once, one of them trains alone.

Roles. The label holder has the labels and columns of its own. Feature holders 1..l have other columns of the same rows,
in the same order.

    0  label holder -> feature holder   HaveTransfer    with a cache: this transfer of yours I have kept
    1  feature holder -> label holder   ReadyToTrain    my table is in order
       label holder -> feature holder   GoAhead         so are all
    2  feature holder -> label holder   ColumnKinds     number and kind of the buckets of each column, no names
                                        Buckets         the bucket of each value, after randomised response
                                        SameAsBefore    instead of both, where the kept transfer still holds
    3  label holder -> feature holder   OwnSplits       what the model asks about this party's columns

Between 2 and 3 the label holder trains by itself on its own columns and on the buckets; with `debias` the trees allow
for the randomness. There is no message per tree, and a later training on the same rows needs no transfer at all, so
tuning is free.

What each ends up knowing. Label holder: the trees, the leaf values, its own thresholds; of every other column the
randomised bucket of every row, how many buckets there are and whether they are levels; "bucket 3 of column 5 of shop"
where a tree asks about it. No name, no edge, no level of another party. Feature holder: at which of its own buckets the
model splits, hence its own thresholds; nothing of the trees, of other parties or of scores.

Honest but curious parties. The noise is for each element, whatever the label holder knows of the others, and it holds
against all others together. It does not cover the labels: which of its columns and buckets the model chose tells a
feature holder something about them. It does not cover the model. FederBoost (Tian et al.), section on vertical
training; where this differs from the paper: docs/protocols/vertical_bucket_rr.md.
"""
