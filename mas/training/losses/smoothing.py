"""Keeping each token's entropy in a band around what it used to be: EPO's entropy smoothing.

Shape legend: J loss tokens; `usual_J` is the average entropy so far of the token's step in the episode, in nats.

Source: EPO, arXiv 2509.22576. Its published penalty is a constant on each side of the band, so that it changes the
value of the loss and none of its gradients; `band_hinge` is ours and has one.
"""

from torch import Tensor


def band_hinge(entropy_J: Tensor, usual_J: Tensor, *, low: float, high: float) -> Tensor:
    """P = max(0, low x usual - H) + max(0, H - high x usual): how far H is out of the band, in nats.

    Its slope towards H is -1 below the band, 1 above it, 0 inside; `usual_J` gets no gradient.
    """
    usual_J = usual_J.detach()
    return (low * usual_J - entropy_J).clamp(min=0) + (entropy_J - high * usual_J).clamp(min=0)
