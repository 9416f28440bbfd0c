"""The pipeline: what a recipe says, done in order; :mod:`lingraft.pipeline.adapt` reads like the method."""
