"""The identity of the VM, read from the instance document."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.documents.documents import VM

from bridge.imds.client import Imds, ImdsError
from bridge.imds.identity import IdentityError, await_identity, fetch_identity, read_identity
from bridge.known_api_versions import EVENTS_API_VERSIONS
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm
from wire.vm import VmIdentity

COMPUTE = {
    "azEnvironment": "AzurePublicCloud",
    "vmId": VM.vm_id,
    "name": VM.name,
    "resourceId": VM.resource_id,
    "subscriptionId": VM.subscription_id,
    "resourceGroupName": "shop",
    "location": "northeurope",
    "zone": "2",
    "vmScaleSetName": "web",
    "platformFaultDomain": "1",
    "platformUpdateDomain": "4",
    "osType": "Linux",
    "vmSize": "Standard_D4s_v5",
    "tagsList": [
        {"name": "owner", "value": "shop-team"},
        {"name": "secret", "value": "not for a bus"},
    ],
}


def test_an_identity_has_all_that_imds_says() -> None:
    """The identity has every field of IMDS, and the tags that the settings name."""
    assert read_identity(COMPUTE, ["owner"]) == VM


def test_what_imds_leaves_empty_is_null() -> None:
    """An empty field of IMDS, such as the scale set's name, is null."""
    vm = read_identity(
        {"vmId": "x", "name": "y", "vmScaleSetName": "", "zone": "", "resourceId": 3.5}, []
    )
    assert vm == VmIdentity(vm_id="x", name="y")


def test_a_domain_may_be_a_number() -> None:
    """A fault or update domain that is a number is read as text."""
    vm = read_identity(COMPUTE | {"platformFaultDomain": 0, "platformUpdateDomain": True}, [])
    assert (vm.fault_domain, vm.update_domain) == ("0", None)


@pytest.mark.parametrize(
    "compute",
    [
        {},
        {"vmId": "x"},
        {"name": "y"},
        {"vmId": "", "name": "y"},
        {"vmId": "x", "name": " "},
        {"vmId": None, "name": "y"},
        {"vmId": ["x"], "name": "y"},
        {"error": "Bad request"},
    ],
)
def test_without_id_or_name_there_is_no_identity(compute: dict[str, Any]) -> None:
    """An instance document without a vmId or a name is an error; no host name replaces them."""
    with pytest.raises(IdentityError):
        read_identity(compute, [])


@pytest.mark.parametrize(
    ("listed", "wanted", "expected"),
    [
        ([{"name": "Owner", "value": "x"}], ["owner"], {"owner": "x"}),
        ([{"name": "owner", "value": "x"}], [], {}),
        ([{"name": "owner", "value": "x"}], ["team"], {}),
        ([{"name": "owner", "value": None}], ["owner"], {}),
        ([{"name": "owner", "value": 3}, None, "owner", {"value": "x"}], ["owner"], {}),
        ([{"name": "owner", "value": ""}], ["owner"], {"owner": ""}),
        ("owner:x", ["owner"], {}),
        (None, ["owner"], {}),
    ],
)
def test_only_named_tags_are_taken(
    listed: object, wanted: list[str], expected: dict[str, str]
) -> None:
    """Only tags that the settings name are read, in any case, because tags can hold what should not
    be sent.
    """
    assert expected == dict(read_identity(COMPUTE | {"tagsList": listed}, wanted).tags)


def test_an_identity_is_fetched_from_imds() -> None:
    """The identity is read with one request to the instance document."""
    with Simulator(vm=SimulatedVm(name="web_7")) as simulator:
        imds = Imds(
            simulator.url, api_version=EVENTS_API_VERSIONS[-1], timeout=5.0, first_timeout=5.0
        )
        vm = fetch_identity(imds, ["environment"])
    assert ("web_7", simulator.vm.vm_id, {"environment": "simulated"}) == (
        vm.name,
        vm.vm_id,
        dict(vm.tags),
    )


def script(*answers: VmIdentity | Exception) -> Callable[[], VmIdentity]:
    """Return a fetch that gives these answers one after the other."""
    left = list(answers)

    def fetch() -> VmIdentity:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return fetch


def wait(
    fetch: Callable[[], VmIdentity],
    kept: VmIdentity | None = None,
    *,
    stop: threading.Event | None = None,
    patient: bool = True,
) -> VmIdentity | None:
    """Await the identity without pauses."""
    return await_identity(
        fetch, kept, stop=stop or threading.Event(), interval=0.0, patient=patient
    )


OLD = VmIdentity(vm_id=VM.vm_id, name="old")
DOWN = ImdsError("nobody listens", reason="refused")


def test_what_imds_says_now_wins() -> None:
    """The identity from IMDS is used before a stored one, because the VM may have been resized."""
    assert wait(script(VM), OLD) == VM


@pytest.mark.parametrize("error", [DOWN, IdentityError("no name")])
def test_a_stored_identity_is_used_meanwhile(error: Exception) -> None:
    """While IMDS does not answer, the stored identity is used, so that deliveries need not wait."""
    assert wait(script(error), OLD) == OLD


def test_without_anything_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    """Without a stored identity the bridge waits, and logs each reason once."""
    other = IdentityError("the instance document has no vmId or no name")
    vm = wait(script(DOWN, DOWN, DOWN, other, VM))
    assert (vm, [record.message for record in caplog.records]) == (VM, [str(DOWN), str(other)])


def test_it_need_not_be_patient() -> None:
    """`seb run --once` gives up at the first failure."""
    assert wait(script(DOWN), patient=False) is None


def test_it_can_be_told_to_stop() -> None:
    """A stop ends the wait."""
    stop = threading.Event()

    def fetch() -> VmIdentity:
        stop.set()
        raise DOWN

    assert wait(fetch, stop=stop) is None
