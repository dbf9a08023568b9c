"""What a pruned network becomes on its way out: fewer units, sparse tables, C, ONNX."""
