"""speculators-patch: rewrites the installed speculators generator to fit the installed vLLM."""
