"""Which sampler plays which `algorithm.sampler.mode`."""

from mas.training.sampling.entropy_tree import EntropyTreeSampler
from mas.training.sampling.full_tree import FullTreeSampler
from mas.training.sampling.parallel import ParallelSampler
from mas.training.sampling.tree import TreeSampler

SAMPLERS: dict[str, type[TreeSampler] | type[ParallelSampler] | type[FullTreeSampler] | type[EntropyTreeSampler]] = {
    "tree": TreeSampler,
    "parallel": ParallelSampler,
    "full_tree": FullTreeSampler,
    "entropy_tree": EntropyTreeSampler,
}
