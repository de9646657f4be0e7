"""Private servers for a test run: one file each, loopback only, gone without a trace afterwards."""

from hardening.testing.errors import ServerMissing
from hardening.testing.servers.base import LocalServer
from hardening.testing.servers.mariadb import MariaDBServer
from hardening.testing.servers.postgres import PostgresServer
from hardening.testing.servers.rabbitmq import RabbitMQServer
from hardening.testing.servers.redis import RedisServer
from hardening.testing.servers.sentinel import RedisSentinel

__all__ = [
    "LocalServer",
    "MariaDBServer",
    "PostgresServer",
    "RabbitMQServer",
    "RedisSentinel",
    "RedisServer",
    "ServerMissing",
]
