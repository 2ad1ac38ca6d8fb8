"""The instruction set: one entry an opcode, giving its modifiers, pipe, latency class and meaning."""
