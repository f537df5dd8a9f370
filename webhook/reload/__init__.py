"""What a running server reads again: its policy and its certificate."""
