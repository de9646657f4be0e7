"""Receipts by mail, and statements in the database."""
