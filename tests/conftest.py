"""No test reads the settings of the person who runs it, or asks the IMDS of the machine."""

import os

KEPT = ("SEB_TEST_", "SEB_DIST", "SEB_GROUND_CACHE")
"""What says how the tests themselves run."""

for name in [each for each in os.environ if each.startswith("SEB_") and not each.startswith(KEPT)]:
    del os.environ[name]
os.environ["SEB_IMDS__URL"] = "http://127.0.0.1:9"
