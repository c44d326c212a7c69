"""Scripts that the target's interpreter runs, beside the payload of ``verify``."""
