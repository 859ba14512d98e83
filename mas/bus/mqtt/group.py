"""The name under which the processes of one principal share the messages to its address.

Brokers check who may read when they deliver, not when somebody subscribes. A stranger in the group would be handed
messages in turn and get none of them, and nobody else would: they are lost. Hence a name that only holders of the
principal's password can work out.
"""

from hashlib import blake2b


def share_group(address: str, password: str) -> str:
    """What stands for GROUP in `$share/GROUP/...`: 32 characters of 0-9 and a-f, without a trace of the password."""
    return blake2b(address.encode(), key=blake2b(password.encode()).digest(), digest_size=16).hexdigest()
