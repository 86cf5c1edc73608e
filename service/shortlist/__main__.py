"""The command line, for `python -m shortlist`."""

import sys

from shortlist.cli.dispatch import main

sys.exit(main())
