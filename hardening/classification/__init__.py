"""Exception -> permanent, transient or unknown, and the rule that says so."""
