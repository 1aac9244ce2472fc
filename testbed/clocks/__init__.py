"""`testbed clocks`: one scenario in virtual time and, dilated, on a real clock, in one table."""
