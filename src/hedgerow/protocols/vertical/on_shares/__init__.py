"""What all protocols on secret shares have in common: how a party gets what was dealt, and how parties open words.

messages.py   Seed, Dealt, MaskedWords
dealing_out.py  the dealer's side: seeds in, corrections out, lane by lane
supply.py     a party's side of dealing
mesh.py       a party's side of opening: one message to each other party in every round
"""
