"""Result tables, figures described in Vega-Altair, and one self-contained page."""
