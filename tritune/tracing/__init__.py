"""tracing: inside a program that `tritune trace` runs -> a file of what it launches.

Never in the way of the program: nothing waits for the GPU, nothing is launched twice, and what
fails here is left out of the trace.
"""
