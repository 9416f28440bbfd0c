"""Downstream tasks of lm-eval, asked through our own scorer: which, from where, how, and what came out.

Modules that need the ``eval`` extra say so when they are imported: adapter, loading and running.
"""
