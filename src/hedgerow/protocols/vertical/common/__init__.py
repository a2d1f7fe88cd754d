"""What label holders and feature holders of all vertical protocols do alike, in the order of a run.

job.py                            what every vertical job says
fitting.py, labels.py             a party's rows and labels, made to fit what is public about them
agreement.py                      the first messages of every run: do the tables fit together?
message_fields.py                 fields that messages of several protocols share
joint_growth.py, joint_forest.py  trees where every party sums its own columns, and the conversation about splits
parts.py                          what training leaves behind: each party's own part of the model
shared_parts.py, part_files.py    the same where leaf values are shared, and what the files of both have in common
serving.py                        what scoring and explaining have in common
arrays_as_text.py                 their results inside a JSON document
stating.py                        sentences that several statements share
"""
