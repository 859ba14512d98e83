"""The workload: the same for everybody, from its seed alone."""

from benchmarks.serving.workload import Workload


def test_the_same_seed_asks_the_same_and_another_asks_otherwise() -> None:
    assert Workload(seed=1).round(2, is_mixed=True) == Workload(seed=1).round(2, is_mixed=True)
    assert Workload(seed=1).lengths() != Workload(seed=2).lengths()


def test_rounds_have_equal_lengths_and_prompts_and_draws_of_their_own() -> None:
    first, second = (Workload().round(number, is_mixed=True) for number in (1, 2))
    for one, other in zip(first, second, strict=True):
        assert len(one.prompt_ids) == len(other.prompt_ids)
        assert one.sampling == other.sampling
        assert one.prompt_ids != other.prompt_ids
        assert one.seeds != other.seeds


def test_lengths_stay_in_their_bounds_and_the_total_is_their_sum() -> None:
    workload = Workload(requests=500, prompt_tokens=(3, 9), completion_tokens=(8, 64))
    requests = workload.round(0, is_mixed=False)
    prompts = [len(request.prompt_ids) for request in requests]
    completions = [request.sampling.max_tokens for request in requests]
    assert (min(prompts), max(prompts)) == (3, 9)
    assert (min(completions), max(completions)) == (8, 64)
    assert sum(completions) == workload.wanted
    # Log-uniform over 8 to 64: half of them are below the geometric mean, 22.6, a quarter below 13.5.
    assert 0.4 < sum(length <= 22 for length in completions) / 500 < 0.6
    assert 0.18 < sum(length <= 13 for length in completions) / 500 < 0.32


def test_adapters_take_turns_and_the_same_prompts_can_ask_the_bare_base() -> None:
    mixed, plain = (Workload(requests=6).round(1, is_mixed=is_mixed) for is_mixed in (True, False))
    assert [request.adapter for request in mixed] == ["a", "b", "c", None, "a", "b"]
    assert {request.adapter for request in plain} == {None}
    assert [one.prompt_ids for one in mixed] == [one.prompt_ids for one in plain]


def test_nothing_ends_a_completion_early_and_nothing_narrows_its_draws() -> None:
    for request in Workload().round(0, is_mixed=True):
        assert (request.sampling.temperature, request.sampling.stop, len(request.seeds)) == (1.0, (), 1)
