"""The ONNX graphs of a bundle; each module writes those of one plan of the service."""
