"""The one error a request may raise on purpose."""


class Refused(Exception):
    """Why a request can't be answered; ``code`` is a stable word for the reason."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)
