"""How long letters are kept, by state and age: nothing is dropped unless DLQ["RETENTION"] says so."""
