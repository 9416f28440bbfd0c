"""The pipeline: what a recipe says, done in order. Planning loads no torch; see :mod:`lingraft.pipeline.adapt` for the method."""
