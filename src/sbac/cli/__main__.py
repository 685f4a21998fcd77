"""`python -m sbac.cli` is `sbac`."""

import sys

from sbac.__main__ import start

sys.exit(start())
