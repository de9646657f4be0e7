"""The tests, by level: unit, contract, integration, system, browser, migrations."""
