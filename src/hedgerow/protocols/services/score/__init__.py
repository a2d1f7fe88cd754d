"""vertical.scoring: all parties score new rows together with a vertical model, all trees in one round trip.

Roles. The label holder has the trees and its own columns' splits; each feature holder has the splits of its own
columns, by handle. All hold the same rows in the same order, each with its own columns.

    1  feature holder -> label holder   ReadyToScore          number of rows; which model its part is of
    2  label holder -> feature holder   AnswersWanted         all fits together; how many rows go into one message
    3  feature holder -> label holder   Answers, once per batch of rows: for each handle and row one bit, left or right;
                                        or RandomisedAnswers, with `predict_epsilon`

A feature holder answers all its handles for all rows, whether or not a row comes to that node. So nothing has to be
asked tree by tree or level by level, and it does not learn which way a row goes elsewhere. The label holder scores a
batch as soon as everybody's bits for it are there, and the scores stay with it.

With `predict_epsilon` a feature holder first finds, for each row and each column that it is asked about, the cell that
the value is in: two values are in one cell if all its answers about the column are the same. The cell goes through
randomised response over the column's cells, and the bits are those of the cell that comes out. However many trees ask
about a column, one value costs epsilon once.

What each ends up knowing. Label holder: the scores, and for every row which way it goes at each of the feature holders'
splits. Where it knows what a handle asks, that is the interval (or the group of levels) of the row's value; where it
does not, it is which rows are alike, and over many rows how many are in each interval. With `predict_epsilon` it knows
this up to randomised response. Feature holder: how many rows were scored with which model; nothing about scores, labels
or other parties' columns.

Honest but curious parties. Plain answers are in the clear: whoever trains a model across parties and scores with it
gives this much of each scored row. Scoring the same rows twice with `predict_epsilon` is two releases.
"""
