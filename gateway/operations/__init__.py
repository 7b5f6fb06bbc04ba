"""Operations of the admin API: each is declared once, as a row, and served by every front."""
