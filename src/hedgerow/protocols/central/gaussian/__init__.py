"""(epsilon, delta)-private boosting from noisy sums: smoothed one-feature tables first, random oblivious trees second.

    Recipe                                         PrivateRows (one per owner of rows)
    decides from public and released values  ---   SumRequest    --->   updates its scores, adds up its rows
    the next question, in the end the model  <---  noisy sums    ---    exact whole numbers + discrete Gaussian noise

Who adds the noise, and whether sums of several owners are masked on their way, is not the recipe's concern: with one
owner this is central differential privacy, with several it runs inside a secure sum. Everything the recipe does is a
function of released sums, of the public schema and of a public seed; no row, count or score reaches it otherwise.

Order of the modules: `central.bins` (public cells), `requests` (the question as data, and the fixed point), `rows` with
`kernels` (exact sums), `tables` (bins and smoothing), `trees` (the result as trees), `training` (settings, asking and
keeping account), `recipe`.

For one owner of all rows, central.gaussian, there is more: several classes, and other policies for study, of which some
sample the rows or grow trees level by level. `policies`, and `central`, the way in: from a table to a model and its
privacy statement.
"""
