"""Boosted trees with pure differential privacy, trained where all records are: DPBoost (Li et al. 2020), repaired.

    owner of the records                                          everybody
    X, y, secret randomness     ---   model, statement   --->     what the noise leaves, and the schema

1. Public bins from the schema; or edges from a noisy histogram of 256 cells per column (`central.bins`).
2. Labels into [-1, 1] by public bounds (or 0 and 1 for the logistic loss); start score 0 (`records`).
3. Each ensemble: every record draws in secret which one of the ensemble's trees it will serve (`assignment`).
4. Each tree: gradients of its records, in whole numbers, clipped to g*; or, as in the paper, without the records whose
   gradients are beyond it (`records`).
5. Each of `max_depth` levels, all nodes together: one of the public candidates is chosen by the exponential mechanism
   (`growth`). Nothing ever stops a node from splitting, also not that it is empty.
6. Leaves -S/(n + l2), clipped to tau, plus Laplace noise, clipped again; eta times that is added to the scores.
7. The model is made of the choices and the noisy leaves alone (`growth`); `plan` knows what every release costs, before
   a record is looked at.

Who sees the model, statement included, learns nothing else, and about one record only what epsilon allows. The owner
sees everything, as before. Proofs, parameters and limits: docs/protocols/central_dp.md.
"""
