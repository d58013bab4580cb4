"""What is learned: task kinds, readers of real file formats, the catalogue, metrics, batching."""
