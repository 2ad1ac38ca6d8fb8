"""Processes that a test has started, and the sockets they listen at, from /proc."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LISTENING = "0A"


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    command: str
    environment: bytes


@dataclass(frozen=True, slots=True)
class Listener:
    """A TCP socket that takes connections."""

    address: str
    port: int
    process: Process

    @property
    def loopback(self) -> bool:
        found = ipaddress.ip_address(self.address)
        mapped = getattr(found, "ipv4_mapped", None)
        return (mapped or found).is_loopback


def marked(mark: str) -> list[Process]:
    """Processes that have `mark` in their environment, as it was when they started."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environment = (folder / "environ").read_bytes()
            if mark.encode() in environment:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(Process(int(folder.name), command, environment))
    return found


def listeners(processes: list[Process]) -> list[Listener]:
    """The TCP sockets at which these processes listen."""
    owners: dict[str, Process] = {}
    for process in processes:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{process.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = str(link.readlink())
                    if target.startswith("socket:["):
                        owners[target[8:-1]] = process
    return [
        Listener(address, port, owners[inode])
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for address, port, inode in _listening(Path(table))
        if inode in owners
    ]


def _listening(table: Path) -> Iterator[tuple[str, int, str]]:
    for line in table.read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] != LISTENING:
            continue
        text, _, port = fields[1].partition(":")
        # the kernel prints each 32-bit word in the machine's own order
        words = [bytes.fromhex(text[place : place + 8])[::-1] for place in range(0, len(text), 8)]
        raw = b"".join(words)
        address = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
        yield address, int(port, 16), fields[9]
