"""Decisions with reasons on requests and tables, and a service for them."""

from latentgamma._lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
