"""`.tflite` files in both runtimes: `python -m benchmarks.tflite.files`."""
