"""Small configurations of published models of torchvision and transformers, with random weights."""
