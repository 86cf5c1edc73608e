"""`python -m shortlist`."""

import sys

from .cli import main

sys.exit(main())
