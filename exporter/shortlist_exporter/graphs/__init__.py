"""ONNX graphs, a module a plan of the service."""
