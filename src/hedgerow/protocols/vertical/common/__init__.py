"""What label holders and feature holders of all vertical protocols do alike, in the order of a run.

agreement.py      jobs, and whether what everybody brings fits: tables, or parts of a model and rows
messages.py       messages that several protocols share, and fields of their own ones
joint_forest.py   trees where every party sums its own columns, and the conversation about splits
parts.py          what training leaves behind: each party's own part of the model, and its file
shared_parts.py   the same where leaf values are shared
stating.py        sentences that several statements share
"""
