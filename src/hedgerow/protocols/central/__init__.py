"""One table, and a model that is to be released."""
