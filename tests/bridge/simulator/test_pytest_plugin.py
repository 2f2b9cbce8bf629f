"""The pytest plugin with the simulator as a fixture."""

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]


def test_the_fixture_is_there_for_everybody(pytester: pytest.Pytester) -> None:
    """A project without a conftest gets a started simulator, which is stopped after the test."""
    pytester.makepyfile(
        """
        from urllib.error import URLError
        from urllib.request import ProxyHandler, Request, build_opener

        import pytest

        seen = []

        def test_it_runs(imds_simulator):
            seen.append(imds_simulator)
            url = imds_simulator.url + "/metadata/scheduledevents?api-version=2020-07-01"
            request = Request(url, headers={"Metadata": "true"})
            with build_opener(ProxyHandler({})).open(request) as response:
                assert b"DocumentIncarnation" in response.read()

        def test_it_has_stopped():
            with pytest.raises(URLError):
                build_opener(ProxyHandler({})).open(seen[0].url)
        """
    )
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_loading_the_plugin_is_cheap() -> None:
    """If no test uses the fixture, the plugin imports nothing of the simulator."""
    script = (
        "import sys, bridge.simulator.pytest_plugin;"
        "print([name for name in sys.modules if name.startswith(('bridge.', 'http'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.strip() == b"['bridge.simulator', 'bridge.simulator.pytest_plugin']"
