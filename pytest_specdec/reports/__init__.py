"""What people read: text for terminals and files; knows measurements and verdicts only."""
