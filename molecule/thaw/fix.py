"""The fixed file that the scenario puts into the release."""

ANSWER = 42
