import sys

from sample_project.demo.cli import main

sys.exit(main())
