"""From text to batches of ids: vocabulary, records, the step plan, the pipeline."""
