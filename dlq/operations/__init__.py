"""Operations: one thing done to many letters: frozen, paced, stopped when it fails, followed to its end."""
