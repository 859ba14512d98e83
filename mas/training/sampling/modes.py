"""Which sampler plays which `algorithm.sampler.mode`."""

from mas.training.sampling.full_tree import FullTreeSampler
from mas.training.sampling.parallel import ParallelSampler
from mas.training.sampling.tree import TreeSampler

SAMPLERS: dict[str, type[TreeSampler] | type[ParallelSampler] | type[FullTreeSampler]] = {
    "tree": TreeSampler,
    "parallel": ParallelSampler,
    "full_tree": FullTreeSampler,
}
