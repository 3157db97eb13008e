"""Stores remember. They know SQL; they know no clog and no HTTP."""
