"""The evaluator: scores what an agent did, outside its sandbox, and publishes each score as a fact of its own."""
