import threading
from pathlib import Path

from blake3 import blake3

from diloco.rounds.values import ReducedChunk
from diloco.store.reduced import ReducedStore


def test_the_vote_and_the_decision_may_store_the_same_bytes_at_once(tmp_path: Path) -> None:
    data = [bytes([chunk]) * 1000 for chunk in range(4)]
    store = ReducedStore(tmp_path, [len(part) for part in data])
    chunks = [ReducedChunk(digest=blake3(part).digest(), included=bytes([1])) for part in data]
    failures: list[BaseException] = []

    for round_number in range(30):
        together = threading.Barrier(4)

        def write(number: int = round_number, together: threading.Barrier = together) -> None:
            try:
                together.wait()
                store.write(0, number, chunks, data)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.path(0, round_number, chunks).read_bytes() == b"".join(data)
    assert not failures
