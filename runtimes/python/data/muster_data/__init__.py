"""The kinds of the runtime data."""
