"""The kinds of the runtime torch."""
