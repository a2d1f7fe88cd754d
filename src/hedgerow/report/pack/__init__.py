"""The pack: what whoever has to answer for a run hands to a regulator, a customer or an auditor, in one file.

    subject = of_home(home, "3f9a")                 # or of_saved(run): what the pack is about
    files = put_together(subject, attacks)          # name -> bytes, the same bytes for the same inputs
    write_zip(files, "pack.zip")

    pack.html                  all of it on one page, which prints well
    statement.json             what is guaranteed and what is not; in pack.html ordered as NIST SP 800-226
    registry.json              the fields of the public registry of differential-privacy deployments
    manifest.json              what may have left whose house, and what did
    audit_extract.jsonl        the lines of the party's trail about the run, to be checked offline
    audit_verification.json    what a check of them came to
    proposal.json  answers/    what all parties signed before it
    attacks.json               what was attacked, how, and what came of it; or that nothing was
    roles.json                 the parties' roles in words of multi-party computation (ISO/IEC 4922)
    technical_file.md          pre-filled, in the order of Annex IV of the EU AI Act
    model_card.md              what the model is and is not for
    sbom.cdx.json              the software that it was made with (CycloneDX)
    SHA256SUMS                 of all other files

Each page is a list of blocks (`blocks.py`), from which HTML and Markdown are made. Facts are those of the run's own
files; nothing else is made up. What only a person can know stands in a box that says who is to fill it in. Nowhere does
the pack say that a law or a standard is met: that is for those who read it to judge. Rows, values, thresholds, keys and
salts stay at home.
"""
