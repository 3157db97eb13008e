"""The contestants: Ocean and its peers, each run in a process of its own for one benchmark.

A contestant is set up as its own documentation recommends for the highest throughput, and at least as durable as its
defaults. Peers have a virtual environment of their own, without Ocean.
"""
