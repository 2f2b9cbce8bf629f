"""Every service, in the order of the page."""

from tests.survive.cluster import Cluster
from tests.survive.services.etcd import Etcd
from tests.survive.services.haproxy import HaProxy
from tests.survive.services.pacemaker import Pacemaker
from tests.survive.services.patroni import Patroni
from tests.survive.services.rabbitmq import RabbitMq
from tests.survive.services.redis import Redis
from tests.survive.services.slurm import Slurm

_ALL: tuple[type[Cluster], ...] = (Etcd, Patroni, Redis, HaProxy, RabbitMq, Slurm, Pacemaker)
SERVICES = {each.NAME: each for each in _ALL}
