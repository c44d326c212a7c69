"""Real extractions on a GPU with a CUDA vLLM: ``python -m tests.gpu --help``. Not part of the test command."""
