"""Threads, processes, teams of processes, progress, seeds and memory."""
