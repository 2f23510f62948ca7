"""A fourth maker of GPUs, which does not exist: its folder is all that it takes.

``python -m tests.acme …`` is ``gpumon …`` on a machine with two of its GPUs.
"""

import os

from gpumon.model.makers import Maker

PID, FOLDER = "ACME_PID", "ACME_FOLDER"
"""Environment variables: the process on GPU 0, and the folder of the device files."""

_FOLDER = os.getenv(FOLDER, "/dev")


class Acme(Maker):
    """See the module."""

    name = "ACME"
    backend = "acme"
    pci_vendor = "0xacce"
    kernel_drivers = ("acme",)
    backend_class = "tests.acme.backend:AcmeBackend"
    device_file = f"{_FOLDER}/render{{minor}}"
    device_prefix = _FOLDER
    version = "tests.acme.backend:version"
    brands = ("Rocket ",)
    device = "acme"
    cores = "engine"
    clock_heading = "eng MHz"
    load_word = "XU"
    kernel_log = "acme"
    error_label = "ACE"
    error_catalogue = "ACME's handbook"
    error_table = "tests.acme.backend:ERRORS"
    variables = ("ACME_VISIBLE_DEVICES",)
    checks = "tests.acme.checks:CHECKS"


MAKER = Acme()
