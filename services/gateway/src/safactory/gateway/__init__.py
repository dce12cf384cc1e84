"""The gateway: every model call of a session passes here, is counted, and is on the bus before its last byte."""
