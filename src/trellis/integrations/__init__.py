"""Adapters for other people's programs. Each is imported by its own name, and each is optional.

- `trellis.integrations.lightning`: a callback for Lightning's ``Trainer``.
- `trellis.integrations.transformers`: a callback for the ``Trainer`` of Hugging Face Transformers.
- `trellis.integrations.peft`: merge adapters into a pruned model.
- `trellis.integrations.hub`: models on the Hugging Face Hub.
"""
