"""A local page that shows how a model translates: its beam search and its attention."""
