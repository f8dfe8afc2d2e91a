import subprocess
import sys

SHOW = "import runpy, sys; runpy.run_module('protocol.directory.process'); print(sorted(sys.modules))"


def test_the_directory_process_imports_no_torch() -> None:
    imported = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True).stdout
    assert "'hivemind.dht.node'" in imported
    for heavy in ("torch", "numpy", "grpc", "hivemind.averaging"):
        assert f"'{heavy}'" not in imported
