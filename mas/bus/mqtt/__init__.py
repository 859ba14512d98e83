"""A bus that processes on one or more machines share through an MQTT 5 broker, such as mosquitto."""

from mas.bus.mqtt.bus import MqttBus, MqttStatistics

__all__ = ["MqttBus", "MqttStatistics"]
