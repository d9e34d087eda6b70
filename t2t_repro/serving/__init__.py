"""Exports trained models for servers, and sends requests to them."""
