"""From files every machine has to samples whose position in the run's order says what they are."""
