"""What stands on a party's own premises: its folder, its keys, who it is paired with, what it allows, what it did."""
