"""What must hold many times over; run by `tox run -e soak`."""
