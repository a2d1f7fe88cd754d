"""`python -m hedgerow.cli`, for where the installed command is not on the PATH."""

from __future__ import annotations

from hedgerow.cli import main

main()
