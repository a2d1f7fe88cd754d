"""What all protocols on secret shares have in common.

job.py          what every training on shares asks of its job
scales.py       how gradients become integers, and how wide rings must be for them
messages.py     messages to and from the dealer, and the rounds in which masked words are opened
supply.py       both sides of dealing: seeds in, corrections out, lane by lane; a party shares a value of its own
mesh.py         words that are opened: masked, or revealed under a type that says what is learned
columns.py      everybody's columns as one-hot matrices of bins: their sizes, their masks, and the possible splits
full_tree.py    a tree with one split for all nodes of a level, grown on shared rows
playing.py      a party's way through the stages of a training; a common beginning, the dealer as a role, a warm-up

**A run that breaks off** goes on as its next attempt (`runtime.checkpoint`), with new seeds: masks, all that is dealt,
and shares of labels and sides are made anew. What lasts from one tree to the next, and is kept:

    vertical.secret_shared        nothing shared: scores, trees and questions, which their party knows in the clear
    vertical.mp_fedxgb            words of leaves, which are in the parts of the model in the end; P1's scores
    vertical.private_histograms   words [x]_m of the scores x

*Words that are kept may be used again, as they are.* Take some parties without the dealer, and a party h that is not
one of them. A word of h leaves its house in two ways: as [x]_h - [r]_h, to be opened under a mask, or in a result that
is revealed, with a word [z]_h added that was dealt in the same step. [r]_h and [z]_h come from the seed that h and the
dealer have in this attempt alone, and serve once. So they are uniform and independent of all that the others saw, in
this attempt and in any before, x - r of the attempt that broke off included: what they see of h is uniform, given what
was revealed, whatever x is. That rests on new masks. Shares need not be new, so none are made of what was kept.

*The dealer* knows the masks of both attempts, and sees nothing that was opened under either. It hears new seeds, the
same sizes, and where the others go on, which follows from where the run broke off and from no value.

*What is revealed again.* A tree that breaks is grown again from the same scores. Without noise its results are the
same, and nobody learns more; perturbations of vertical.mp_fedxgb are kept before they are sent, for that reason. With
noise each release counts (`private_histograms.holding`).

*Words of two attempts do not add up.* Each has drawn its own, so a tree that only some have kept is forgotten by them
as soon as all have agreed to go on before it: they keep the agreed state once more, in place of all later ones.
"""
