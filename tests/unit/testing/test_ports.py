"""Ports handed out are free, and no one else's by chance."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hardening.testing.ports import FIRST_PORT, LAST_PORT, first_answer, free_port


def test_no_port_is_handed_out_twice():
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == len(ports)


def test_a_handed_out_port_can_be_bound():
    with socket.create_server(("127.0.0.1", free_port())):
        pass


def test_ports_lie_below_those_of_outgoing_connections():
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not ephemeral.exists():
        pytest.skip("the kernel does not say where its range begins")
    assert FIRST_PORT < LAST_PORT < int(ephemeral.read_text().split()[0])


def test_a_closed_port_answers_nothing():
    assert first_answer(free_port()) == b""
