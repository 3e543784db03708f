"""Readers of logs: each turns lines of one program's output into events; `read` joins them."""
