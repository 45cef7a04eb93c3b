"""The kinds of the runtime diffusers."""
