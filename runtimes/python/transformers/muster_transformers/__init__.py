"""The kinds of the runtime transformers."""
