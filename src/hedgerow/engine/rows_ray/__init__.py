"""Rows on a Ray cluster: the verbs of `rows.py` over actors that each hold a block of rows and run the same kernels.

cluster     what a user may say about Ray, and how to reach it
actors      one block of rows in a process of Ray's; many of them as one, with lost ones rebuilt
rows        the four verbs
stored      blocks that actors read from files by themselves
placing     rows here or there, by one call

Actors read their own files. What passes through Ray's object store is sums, counts, edges and split decisions; rows do
only where the user allows it, because a table in memory, or one of Ray Data, has no other way to an actor.
"""
