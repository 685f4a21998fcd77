"""`python -m sbac.cli` is `sbac`."""

import sys

from sbac.cli import main

sys.exit(main())
