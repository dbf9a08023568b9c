"""Ship a pruned network: compaction, sparse tables, C, WebAssembly, ONNX, and the run-time."""
