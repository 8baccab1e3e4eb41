"""Tune Triton kernels once, lock the winners."""
