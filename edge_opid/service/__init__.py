"""The node as a process: its loop, its clock, its journal, and how it talks to systemd."""
