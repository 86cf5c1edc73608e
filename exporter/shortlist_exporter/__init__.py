"""checkpoint -> fit -> ONNX graphs -> bundle -> verify. Offline; needs torch and onnx."""
