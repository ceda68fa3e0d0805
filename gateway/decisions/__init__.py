"""What a gateway decides, without any I/O: handlers write records, `tick` derives what is due."""
