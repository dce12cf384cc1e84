"""The embedded model server: one torch engine, its OpenAI API and its weights."""
