"""From a trained model to text: the search, and the translator around it."""
