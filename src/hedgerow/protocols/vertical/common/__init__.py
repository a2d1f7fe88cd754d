"""What label holders and feature holders of all vertical protocols do alike, in the order of a run.

job.py                            what every vertical job says
messages.py                       messages that several protocols share, and fields of their own ones
tables.py                         what a party brings, made to fit what is public, binned, and agreed on by all
joint_growth.py, joint_forest.py  trees where every party sums its own columns, and the conversation about splits
part_files.py                     what parts of all kinds have in common: columns, target, a file that is read with care
parts.py                          what training leaves behind: each party's own part of the model
shared_parts.py                   the same where leaf values are shared
serving.py                        what scoring and explaining have in common
stating.py                        sentences that several statements share
"""
