"""How numbers and names are written, everywhere."""


def number(value: float | None, digits: int = 1, *, sign: bool = False) -> str:
    """Format a number; one that rounds to zero has no sign, a missing one is empty.

    >>> number(-1.25), number(3.14159, 2, sign=True), number(-0.01), number(None)
    ('−1.2', '+3.14', '0.0', '')
    """
    if value is None:
        return ""
    rounded = round(value, digits)
    return f"{rounded or 0.0:{'+' if sign and rounded else ''}.{digits}f}".replace("-", "−")


def gain_text(estimate: float, low: float, high: float) -> str:
    """Format a gain in points with its interval.

    >>> gain_text(1.84, 1.68, 2.01)
    '+1.84 points (+1.68 to +2.01)'
    """
    gain, low_end, high_end = (number(value, 2, sign=True) for value in (estimate, low, high))
    return f"{gain} points ({low_end} to {high_end})"


def interval_text(value: float, low: float, high: float, digits: int = 1, *, sign: bool = False) -> str:
    """Format an estimate with the ends of its interval, as tooltips show it.

    >>> interval_text(71.24, 70.0, 72.5)
    '71.2 (70.0 to 72.5)'
    >>> interval_text(71.24, 71.24, 71.24)
    '71.2'
    """
    middle, low_end, high_end = (number(end, digits, sign=sign) for end in (value, low, high))
    return middle if low == high else f"{middle} ({low_end} to {high_end})"


def readable(name: str) -> str:
    """Write a corruption's name in words.

    >>> readable("jpeg_compression")
    'JPEG compression'
    """
    return name if "=" in name else name.replace("_", " ").replace("jpeg", "JPEG")
