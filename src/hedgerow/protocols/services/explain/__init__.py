"""vertical.explaining: what each column of a vertical model is worth, told to its owner only.

Roles. The label holder has the trees and its own columns' splits; each feature holder has the splits of its own
columns, by handle, with the names and thresholds behind them.

Importances, of the model as a whole:

    1  feature holder -> label holder   ReadyToExplain        which model its part is of
    2  label holder -> feature holder   HandleGains           for each of its handles: the summed gain, or the number,
                                                              of the splits that ask it

The feature holder adds up its handles column by column.

Contributions, of each column to the scores of given rows, which all parties hold in the same order:

    1  feature holder -> label holder   ReadyToExplain          number of rows; which model its part is of
    2  label holder -> feature holder   BeginExplaining         all fits together; how many rows go into one message
    3  feature holder -> label holder   ColumnsOfHandles        a number for each handle; equal numbers, same column
       feature holder -> label holder   AnswersToExplain        for each row of a batch and each handle one bit
    4  label holder -> feature holder   ContributionsOfColumns  for each row of the batch: what each of its columns adds

Steps 3 and 4 are repeated batch by batch; the answers of the next batches are sent before the contributions of the
first are there. The label holder runs TreeSHAP (`engine/contributions.py`) on its trees. The players are its own
columns and the numbered columns of the others, so each column is one player however many handles ask about it, and
everybody's contributions and the expected value add up to the score.

Interactions, what two columns add to a score only together, go the same way; in step 4 comes instead

    4  label holder -> feature holder   InteractionsOfColumns   for each row of the batch: what each two of its columns
                                                                add together, and each with all others' together

The numbers of step 3 are drawn anew for every run and carry no name. They hide less than it seems: handles are in the
order of their owner's columns, so that with equal numbers side by side the order of the columns asked about shows.

What each ends up knowing. Label holder: its own columns' importances or contributions, and per feature holder the
total. On the way it handles more than it keeps. It has the gain of every split anyway. For contributions it learns
which handles ask about the same column, and for every row which way it goes at each of the feature holders' splits,
as in vertical.scoring; and it calculates the contributions of each feature holder's columns one by one, under their
numbers. Feature holder: importances or contributions of its own columns. Behind importances it sees how much each of
its splits reduced the loss, or how often it is asked, which follows from the labels. Contributions of its columns to a
row depend on leaf values, hence on labels, and on which way the row goes at the other parties' splits on the same
paths: rows that are alike in its own columns and differ in their contributions differ elsewhere. Interactions tell it
the same in more numbers: which part of a contribution comes from its own columns alone, and which from others' as well.

Honest but curious parties. Nothing is masked or randomised: whoever asks for explanations gives and gets this much in
the clear. A privacy guarantee of the training covers them only as far as gains, covers and leaf values were calculated
from what was noised. No name of a column leaves its owner.
"""
