"""What parties do together before and after a training: matching rows, scoring, explaining."""
