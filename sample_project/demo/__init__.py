"""The shop at work: `python -m sample_project.demo` runs some hundred jobs and accounts for each."""
