"""A lost connection is said once, and once that it is back."""

from pathlib import Path

from between import QUICK, until
from mosquitto import needs_mosquitto, running_mosquitto

from mas.bus.mqtt import MqttBus

pytestmark = needs_mosquitto


async def test_a_watcher_hears_once_that_the_connection_is_lost_and_once_that_it_is_back(tmp_path: Path):
    heard: list[bool] = []
    with running_mosquitto(tmp_path) as broker:
        async with MqttBus.connect(broker.url("alice"), options=QUICK) as bus:
            bus.on_connection(heard.append)
            for times in (1, 2):
                broker.kill()
                await until(lambda times=times: len(heard) == 2 * times - 1)
                broker.start()
                await until(lambda times=times: len(heard) == 2 * times)
                assert bus.statistics().reconnects == times
        assert heard == [False, True] * 2
