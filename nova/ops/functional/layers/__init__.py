"""Functions of layers: random activations and dropout of channels, bags, fractional pooling."""
