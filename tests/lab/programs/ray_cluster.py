"""A Ray cluster that was there before: `ray start`, then a driver that connects to it, as two
commands would. Says READY, and stops the cluster when its standard input closes."""

import subprocess
import sys
from pathlib import Path

RAY = str(Path(sys.executable).with_name("ray"))
DRIVER = """
import time, ray, numpy
ray.init(address="auto", log_to_driver=False)

@ray.remote(num_cpus=0.1)
class Holder:
    def hold(self):
        self.block = numpy.ones(64 << 20, dtype=numpy.uint8)

holders = [Holder.remote() for _ in range(2)]
ray.get([each.hold.remote() for each in holders])
print("READY", flush=True)
time.sleep(600)
"""


def main() -> None:
    start = ["start", "--head", "--num-cpus=2", "--include-dashboard=false", "--port=6399"]
    subprocess.run([RAY, *start, "--object-store-memory=200000000"], check=True)
    driver = subprocess.Popen([sys.executable, "-c", DRIVER])
    sys.stdin.read()
    driver.kill()
    driver.wait()
    subprocess.run([RAY, "stop", "--force"], check=True)


main()
