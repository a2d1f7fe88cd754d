"""Pages for people who sign: the report of a run, of one party, of a model. One file each, and no other."""
