"""A private RabbitMQ node with its own port mapper (epmd)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hardening.testing.errors import ProcessError
from hardening.testing.ports import LOOPBACK, first_answer, free_port
from hardening.testing.processes import ManagedProcess
from hardening.testing.servers.base import LocalServer, find_program, missing, run_and_read

AMQP_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = b"\x01"
EPMD_NAMES_REQUEST = b"\x00\x01n"
_QUEUE_COUNTS = re.compile(r"{('[^']*'|[^,{}]+), ?\[([^\]]*)\]}")


class RabbitMQServer(LocalServer):
    """RabbitMQ of the system; user `guest`, virtual host `/`, no plug-ins.

    Its node name, ports, cookie and port mapper are its own: it neither meets nor disturbs another node.
    """

    name = "rabbitmq"
    start_timeout_seconds = 60.0
    stop_timeout_seconds = 40.0

    def __init__(
        self,
        *,
        extra_config: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        port: int | None = None,
    ) -> None:
        """`extra_config` as in rabbitmq.conf, for instance `{"consumer_timeout": "10000"}`."""
        self._scripts, self._epmd_program = rabbitmq_programs()
        self._extra_config = dict(extra_config or {})
        self._dist_port = free_port()
        self._epmd_port = free_port()
        self._epmd: ManagedProcess | None = None
        super().__init__(data_dir=data_dir, port=port)
        self.node = f"rabbit{self.port}@localhost"

    @property
    def url(self) -> str:
        return self.url_for("/")

    def url_for(self, vhost: str) -> str:
        """The URL of one of its virtual hosts."""
        return f"amqp://guest:guest@{self.host}:{self.port}/{vhost}"

    def is_ready(self) -> bool:
        # The listener opens last; a node that can still fail to boot does not answer the protocol header.
        return first_answer(self.port, request=AMQP_HEADER)[:1] == METHOD_FRAME

    @property
    def port_mapper(self) -> ManagedProcess:
        """Its epmd."""
        if self._epmd is None:
            raise ProcessError("the port mapper does not run")
        return self._epmd

    def rabbitmqctl(self, *arguments: str, timeout: float = 60.0) -> str:
        """Run rabbitmqctl against this node and return its output, without tables' frames and notices."""
        return run_and_read(
            [self._scripts / "rabbitmqctl", "--quiet", *arguments], env=self._env(), timeout=timeout
        )

    def add_vhost(self, vhost: str) -> str:
        """Make a virtual host that `guest` may use and return its URL: an empty broker, quickly."""
        self.evaluate(
            f'ok = rabbit_vhost:add(<<"{vhost}">>, <<"tests">>), '
            "ok = rabbit_auth_backend_internal:set_permissions("
            f'<<"guest">>, <<"{vhost}">>, <<".*">>, <<".*">>, <<".*">>, <<"tests">>)'
        )
        return self.url_for(vhost)

    def delete_vhost(self, vhost: str) -> None:
        """End a virtual host, its connections and its queues."""
        self.evaluate(f'ok = rabbit_vhost:delete(<<"{vhost}">>, <<"tests">>)')

    def queue_counts(self, vhost: str, *columns: str) -> dict[str, tuple[int, ...]]:
        """By queue the numbers that `rabbitmqctl list_queues` has in these columns."""
        # As pairs of a list of characters and a tuple: what a client of Erlang prints without ambiguity.
        found = self.evaluate(
            f"[{{list_to_atom(binary_to_list(element(4, proplists:get_value(name, I)))), "
            f"[proplists:get_value(C, I) + 1000 || C <- [{', '.join(columns)}]]}} "
            f'|| I <- rabbit_amqqueue:info_all(<<"{vhost}">>, [name, {", ".join(columns)}])]'
        )
        return {
            name.strip("'"): tuple(int(number) - 1000 for number in numbers.split(","))
            for name, numbers in _QUEUE_COUNTS.findall(found)
        }

    def evaluate(self, expression: str) -> str:
        """The value of an Erlang expression in this node, as text; in milliseconds.

        `rabbitmqctl eval` does the same, and starts an Erlang of its own for that: nearly a second of work.
        """
        call = find_program("erl_call", also_in=sorted(Path("/usr/lib/erlang").glob("erts-*/bin")))
        if call is None:
            return self.rabbitmqctl("eval", f"{expression}.").strip()
        answer = run_and_read(
            [call, "-sname", self.node, "-timeout", "30", "-e"], env=self._env(), stdin=f"{expression}.\n"
        )
        outcome, _, value = answer.strip().removeprefix("{").removesuffix("}").partition(", ")
        if outcome != "ok":
            raise ProcessError(f"{self.node} does not evaluate {expression}: {answer}")
        return value

    def _prepare(self) -> None:
        config = {
            "listeners.tcp.1": f"{LOOPBACK}:{self.port}",
            "loopback_users.guest": "true",
            "log.console": "true",
            "log.console.level": "info",
            "log.file": "false",
            # A nearly full disk of the test machine must not block publishers.
            "disk_free_limit.absolute": "1MB",
            **self._extra_config,
        }
        lines = "".join(f"{key} = {value}\n" for key, value in config.items())
        (self.data_dir / "rabbitmq.conf").write_text(lines)
        (self.data_dir / "enabled_plugins").write_text("[].\n")
        (self.data_dir / "rabbitmq-env.conf").write_text("")

    def _before_start(self) -> None:
        # Erlang would start a mapper of its own in the background and leave it behind.
        self._epmd = ManagedProcess(
            [self._epmd_program, "-address", self.host, "-port", str(self._epmd_port)],
            log_path=self.data_dir / "epmd.log",
        ).start()
        self._epmd.wait_ready(
            lambda: first_answer(self._epmd_port, request=EPMD_NAMES_REQUEST) != b"", what="map ports"
        )

    def _after_end(self) -> None:
        if self._epmd is not None:
            self._epmd.stop()
            self._epmd = None

    def _env(self) -> dict[str, str]:
        directory = str(self.data_dir)
        loopback = "{" + self.host.replace(".", ",") + "}"
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": directory,  # the Erlang cookie is kept there
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_MNESIA_BASE": f"{directory}/mnesia",
            "RABBITMQ_LOG_BASE": f"{directory}/log",
            "RABBITMQ_PID_FILE": f"{directory}/pid",
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{directory}/rabbitmq-env.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{directory}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/enabled_plugins",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": self.host,
            # Makes the script become the server (exec) instead of a shell that waits for it.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"-kernel inet_dist_use_interface {loopback} -start_epmd false"
            ),
        }

    def _command(self) -> Sequence[str | os.PathLike[str]]:
        return [self._scripts / "rabbitmq-server"]


def rabbitmq_programs() -> tuple[Path, Path]:
    """The directory of RabbitMQ's scripts and the port mapper, or `ServerMissing`."""
    # Debian's wrapper on PATH would change the user and write to the system's log directory.
    places = [
        Path("/usr/lib/rabbitmq/bin"),
        *sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin")),
    ]
    scripts = next((place for place in places if os.access(place / "rabbitmq-server", os.X_OK)), None)
    if scripts is None and (on_path := find_program("rabbitmq-server")) is not None:
        scripts = on_path.resolve().parent
    epmd = find_program("epmd", also_in=sorted(Path("/usr/lib/erlang").glob("erts-*/bin")))
    if scripts is None or epmd is None:
        raise missing(
            "RabbitMQ",
            looked_for="rabbitmq-server in /usr/lib/rabbitmq and on PATH, and epmd",
            remedy="Install the Debian package rabbitmq-server.",
        )
    return scripts, epmd
