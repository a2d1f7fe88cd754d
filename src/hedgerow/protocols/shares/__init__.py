"""What all protocols on secret shares have in common.

job.py          what every training on shares asks of its job
scales.py       how gradients become integers, and how wide rings must be for them
messages.py     messages to and from the dealer, and the rounds in which masked words are opened
supply.py       both sides of dealing: seeds in, corrections out, lane by lane; a party shares a value of its own
mesh.py         words that are opened: masked, or revealed under a type that says what is learned
columns.py      a party's own columns as a one-hot matrix of bins; possible splits as differences of running totals
playing.py      a common beginning, labels within their public range, the dealer as a role, and a warm-up
"""
