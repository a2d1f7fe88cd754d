"""For people who add a kernel or a protocol: slow twins, hostile peers, parties, transcripts, repeated masks, cut links."""
