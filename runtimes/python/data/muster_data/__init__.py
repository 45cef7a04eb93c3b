"""The kinds of the runtime data: tables of any size, described and converted."""
