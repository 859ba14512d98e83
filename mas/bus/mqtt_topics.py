"""Names as levels of MQTT topics.

    mas/{space}/to/{address}/{sender}                  messages to an address; its listeners share them
    mas/{space}/back/{principal}/{process}/{sender}    acks, answers, questions, errors and cancels to one process
    mas/{space}/stream/{principal}/{process}/{sender}  token streams to one process
    mas/{space}/card/{principal}/{process}             retained presence cards

`sender` is the principal that publishes: the broker lets nobody write under another's name.
"""

from urllib.parse import quote


def level(name: str) -> str:
    """A name as one level of a topic, percent-encoded: it can be no wildcard, no separator and no topic of the broker.

    Raises:
        ValueError: the name is empty.
    """
    if not name:
        raise ValueError("an empty name cannot be a level of a topic")
    return quote(name, safe="")
