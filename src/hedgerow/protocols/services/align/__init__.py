"""vertical.aligning: which records do all parties hold? Everybody learns its own rows of them, in one common order.

Roles. Parties 1..M hold tables with ids of records, one row for each id. One of them is the comparer. The parties form
a ring, in the order of their names; each talks to its two neighbours and to the comparer.

    1  party -> comparer       IdsDescription   by which rule ids are written, and how many there are
       comparer -> party       IdsAgreed        how many ids everybody has: all rules are the same
    2  party -> next party     BlindedIds       its own ids as points under its own secret key, in random order
       party -> next party     BlindedIds       M - 2 times: what came, multiplied by its own key and shuffled
       party -> next party     AtWork           in place of a block, where a set has ended and a larger one has not
    3  last party -> comparer  FullyBlinded     a set that has been everywhere: now equal ids are equal points
       comparer -> party       BlocksRead       once for each block of the largest set that it is sent
    4  comparer -> party       Verdict          how many ids all have, or that they are too few to go on
       comparer -> last party  CommonPlaces     where in that set the common ids stand
       party -> party before   CommonPlaces     M - 1 times, with its own shuffle undone, until the owner has its rows

All sets travel at the same time, in blocks. A party multiplies the next block of its own ids, passes it on, takes the
next block of the party before, and so on; a set is passed on when all of it has come, since the first part of a set,
shuffled, would show which points came first. Blocks are what keeps the memory bounded and deadlines met: every party
sends something in every turn, so that each message is due after a few blocks' work, whoever has how many ids. While a
block is multiplied, by this process or by actors of the party's own (`on_ray`), the next one is already started.

What each ends up knowing. Every party: how many ids each party has, how many ids all have in common, and its own rows
of these in the common order, which is random and says nothing about ids or rows. Comparer: in addition how many ids
each group of parties has in common, as numbers; with two parties that is nothing more. Nobody learns of an id that it
does not hold, nor which of its ids some but not all of the others hold. If fewer than `minimum` ids are common, nobody
but the comparer learns how many, and nobody learns any row.

Honest but curious parties, and the decisional Diffie-Hellman assumption on P-256 with SHA-256 as a random function; all
parties but one together learn no more than the result and numbers for groups. The argument, step by step, and what is
not claimed: `hedgerow.crypto.psi`. Who lies about its ids can test for ids of its choice, and small numbers speak about
single persons.
"""
