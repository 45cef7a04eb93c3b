"""The kinds of the runtime trl."""
