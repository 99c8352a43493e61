"""The blocks of README and docs do what they show."""
