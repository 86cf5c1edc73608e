"""ONNX Runtime sessions, the devices and threads that they run on."""
