"""Those who take part, each in a process of its own: one question is asked, one answer is given.

What a contestant does is what its own documents recommend for the most work in the least time, with nothing less
durable than it ships. Peers live in an environment of their own, in which Ocean is not installed.
"""
