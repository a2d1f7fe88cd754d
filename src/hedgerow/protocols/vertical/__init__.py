"""Columns are split between parties who share their rows; one of them, the label holder, has the labels.

    job.py          what every vertical job says
    agreement.py    the first messages of every vertical run: do the tables fit together?
    parts.py        what training leaves behind: each party's own part of the model
    shared_parts.py                   the same where leaf values are shared
    part_files.py                     what the files of both have in common
    serving.py, service_protocol.py   what scoring and explaining have in common
    arrays_as_text.py                 their results inside a JSON document
    aligning/       before training: which rows do all parties hold?
    on_shares/      what protocols on secret shares have in common
    bucket_rr/, noised_gradients/, masked_gradients/, private_histograms/,         training
    secret_shared/, mp_fedxgb/
    joint_growth.py                   trees where every party sums its own columns
    foreign_splits.py                 whose each foreign split is, while the label holder's trees grow
    scoring/        afterwards: predictions by all parties together
    closed_scoring/ the same on shares, with nothing opened but the scores
    explaining/     afterwards: importances and contributions, to each party those of its own columns

All parties are taken to follow the protocol, and to be curious.
"""
