"""For whoever adds a kernel or a protocol: slow twins, hostile peers, parties, transcripts, cut links."""
