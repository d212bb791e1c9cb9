"""What an institution runs: studies, its policy, ledger and releases, and runs by files."""
