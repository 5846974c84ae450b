"""What a limit means: pure functions from a measurement and a limit to a verdict, one file per family."""
