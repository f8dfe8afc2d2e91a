"""Which clients serve what they fetched, as a server heard from them."""


class Known:
    """Peers that said of themselves that they serve, by address; forgotten when they say it no longer."""

    def __init__(self, lasting: float, most: int) -> None:
        self._lasting, self._most = lasting, most
        self._until: dict[str, float] = {}

    def note(self, url: str, now: float) -> None:
        """A peer serves at this address."""
        self._until = {known: until for known, until in self._until.items() if until > now}
        if len(self._until) < self._most or url in self._until:
            self._until[url] = now + self._lasting

    def others(self, url: str, now: float) -> list[str]:
        """Every peer but one."""
        return [known for known, until in self._until.items() if until > now and known != url]
