"""What plays a protocol, wherever it plays: parties, threads, processes, and what they agree on before."""
