"""Presets and overrides make one checked configuration; whatever is wrong is one clear error."""

import re
import subprocess
import sys
from importlib import resources
from itertools import product
from pathlib import Path

import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from other_packages import put_package

from mas.algorithms.registry import SHIPPED, find_algorithm
from mas.config import load
from mas.config.load import load_config, overrides_of, presets
from mas.config.options import Config
from mas.config.stored_run import load_run_config
from mas.core.errors import ConfigError, RunDirectoryError
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.registry import PLAYED_ELSEWHERE


def test_without_overrides_only_presets_differ_from_the_defaults() -> None:
    config = load_config()
    assert (config.scenario.name, config.algorithm.name) == ("plan_path", "at_grpo")
    assert (config.engine, config.model.lora) == (Config().engine, Config().model.lora)


def test_every_built_in_scenario_has_a_preset() -> None:
    assert set(presets("scenario")) == {*SCENARIOS, *PLAYED_ELSEWHERE}


PAIRS = tuple(product(presets("scenario"), presets("algorithm")))
EACH_ONCE = {
    *(
        (find_algorithm(algorithm).recipe.scenario or Config().scenario.name, algorithm)
        for algorithm in presets("algorithm")
    ),
    *((scenario, Config().algorithm.name) for scenario in presets("scenario")),
}


@pytest.mark.matrix("scenario,algorithm", PAIRS, default=EACH_ONCE)
def test_every_pair_of_presets_fits_together(scenario: str, algorithm: str) -> None:
    config = load_config([f"scenario={scenario}", f"algorithm={algorithm}"])
    assert (config.scenario.name, config.algorithm.name) == (scenario, algorithm)
    # its own team is in another scenario; a program of its own has no team but that of its roles
    is_elsewhere = find_algorithm(algorithm).recipe.scenario not in ("", scenario) or scenario == "program"
    assert is_elsewhere or config.algorithm.team in build_scenario(config.scenario).teams


def test_every_yaml_file_is_a_preset_of_a_known_group_the_primary_configuration_or_a_study() -> None:
    root = Path(str(resources.files("mas.conf")))
    files = {str(path.relative_to(root)) for path in root.rglob("*.yaml") if path.parent.name != "study"}
    assert files == {"config.yaml"} | {
        f"{group}/{name}.yaml" for group in load.GROUPS if group != "algorithm" for name in presets(group)
    }


@pytest.mark.parametrize("name", presets("algorithm"))
def test_a_preset_is_called_like_its_file_and_says_where_it_is_from(name: str) -> None:
    chosen = load_config([f"algorithm={name}"]).algorithm
    assert chosen.name == name
    assert (chosen.team == "solo") == (name == "single_grpo")
    recipe = find_algorithm(name).recipe
    assert re.fullmatch(r"(\d{4}\.\d{5})?", recipe.paper)  # empty: ours
    assert recipe.does.endswith(".")
    assert not recipe.differs.endswith(".")
    if recipe.scenario:
        assert load_config([f"scenario={recipe.scenario}", f"algorithm={name}"]).algorithm.name == name


def test_every_file_of_the_folder_of_algorithms_is_one_of_them_and_is_called_like_it() -> None:
    names = {path.stem for path in Path(str(resources.files("mas.algorithms"))).glob("*.py")}
    assert names - {"__init__", "base", "registry", "settings"} == set(SHIPPED)
    assert {name: f"mas.algorithms.{name}" for name in SHIPPED} == SHIPPED
    assert list(SHIPPED) == sorted(SHIPPED)


def test_no_two_presets_do_the_same() -> None:
    chosen = {name: load_config([f"algorithm={name}"]).algorithm for name in presets("algorithm")}
    same = {one.model_copy(update={"name": ""}).model_dump_json() for one in chosen.values()}
    assert len(same) == len(chosen)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["algorithm.advantage.baseline=none"], "does not go together with advantage.scale=std"),
        (["algorithm.advantage.baseline=running"], "it is a mean per role: write both"),
        (["algorithm.reward.discount=0.9"], "which sampler.mode=parallel plays"),
        (["algorithm=grpo_roc", "algorithm.sampler.mode=tree"], "which sampler.mode=parallel plays"),
        (["algorithm=ppo", "algorithm.advantage.whiten=turns"], "its option whiten whitens"),
        (
            ["algorithm=gdpo", "algorithm.advantage.scale=none"],
            "components does not go together with advantage.scale=none",
        ),
        (
            ["algorithm=stratified_grpo", "algorithm.advantage.baseline=best"],
            "strata does not go together with advantage.baseline=best",
        ),
        (["algorithm=cory", "algorithm.policy=shared"], "swap does not go together with policy=shared"),
        (
            ["algorithm=training_free", "algorithm.sampler.mode=tree"],
            "update=training_free does not go together with sampler.mode=tree",
        ),
        (["algorithm=gigpo", "algorithm.options.step_wieght=1"], "Did you mean 'step_weight'"),
        (["algorithm.loss.reference=1"], "is a section; set one of its keys: ema"),
    ],
)
def test_parts_that_do_not_go_together_are_refused_with_the_reason(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        load_config(words)


def test_ppo_and_poad_differ_in_what_is_discounted() -> None:
    ppo, poad = (load_config([f"algorithm={name}"]).algorithm for name in ("ppo", "poad"))
    assert ppo.advantage.baseline == poad.advantage.baseline == "critic"
    assert (ppo.critic.level, poad.critic.level, poad.critic.gamma) == ("token", "bad", 0.95)


def test_the_command_line_wins_over_every_preset() -> None:
    words = ["algorithm.sampler.mode=tree", "algorithm=single_grpo", "scenario.options.size=5", "learner.lr=1e-4"]
    config = load_config([*words, "train.token_budget=null", "run_dir=runs/x", "scenario=plan_path"])
    assert config.algorithm.sampler.mode == "tree"
    assert config.algorithm.team == "solo"
    assert config.scenario.options == {"size": 5}
    assert config.learner.lr == 1e-4
    assert config.run_dir == "runs/x"


def test_a_scenario_preset_may_set_other_sections_and_the_algorithm_preset_wins_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "presets_under_test"
    files = {
        "__init__.py": "",
        "config.yaml": "defaults: [_self_, {scenario: far}, {algorithm: quick}, {engine: fast}]",
        "engine/fast.yaml": "adapters: 3\n",
        "scenario/far.yaml": "# @package _global_\nscenario: {name: far}\ntrain: {steps: 7, seed: 7}\n"
        "algorithm: {loss: {entropy: 0.7}, reward: {alpha: 0.7}}\n",
        "algorithm/quick.yaml": "name: quick\nloss: {entropy: 0.1}\n",
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(load, "_PRESETS", "presets_under_test")
    config = load_config(["train.seed=1"])
    assert (config.train.steps, config.train.seed) == (7, 1)
    assert (config.algorithm.loss.entropy, config.algorithm.reward.alpha) == (0.1, 0.7)


BAD = [
    ("scenario=pln_path", "scenario=pln_path: no such scenario. Did you mean 'plan_path'?"),
    (
        "scenario=open_spiel:kuhn_poker",
        "'open_spiel:kuhn_poker' is the id of a bridge, an environment of another library",
    ),
    ("algorithm=grpo", "algorithm=grpo: no such algorithm. Did you mean"),
    ("algorithm=hrpo", "algorithm=hrpo: no such algorithm. 'hrpo' is now called 'action_grpo'."),
    ("algorithm.name=hrpo", "algorithm.name=hrpo: no such algorithm. 'hrpo' is now called 'action_grpo'."),
    ("train.stps=3", "no key 'train.stps' (value 3). Did you mean 'steps'?"),
    ("model.tiny.hiden=3", "no key 'model.tiny.hiden' (value 3). Did you mean 'hidden'?"),
    ("algorithm.rewrd.weights.x=1", "Did you mean 'reward'?"),
    ("steps=3", "Did you mean 'train.steps' or 'model.tiny.steps' or"),
    ("scenario=task.py", "no such scenario. Name the class in the file: scenario=task.py:CLASS"),
    ("relay", "Did you mean scenario=relay?"),
    ("hydra.run.dir=x", "no key 'hydra'"),
    ("train.steps=many", "train.steps='many' is not possible: it should be a valid integer"),
    ("train.steps=-1", "train.steps=-1 is not possible: it should be greater than or equal to 0"),
    ("train.target=2", "less than or equal to 1"),
    ("train.record_every=true", "train.record_every: true is not a number"),
    ("learner.weight_decay=false", "learner.weight_decay: false is not a number"),
    ("learner.lr=true", "learner.lr: true is not a number"),
    ("train.target=true", "train.target: true is not a number"),
    ("learner.lr=inf", "learner.lr=inf is not possible: it should be a finite number"),
    ("model.lora.alpha=inf", "model.lora.alpha=inf is not possible: it should be a finite number"),
    ("algorithm.loss.clip_high=inf", "it should be a finite number"),
    ("model.lora.targets=[]", "it should have at least 1 item"),
    ("model.tiny.seed=99999999999999999999", "it should be less than"),
    ("model.threads=99999999999999999999", "it should be less than or equal to 1024"),
    ("train.tasks={source: epochs, count: 99999999999999999999}", "it should be less than or equal to 1000000000"),
    ("train=3", "train is a section; set one of its keys: steps,"),
    ("train.steps.x=3", "train.steps={'x': 3} is not possible"),
    ("algorithm.sampler.mode=tre", "Did you mean 'tree' or 'full_tree'? Possible: 'entropy_tree', 'full_tree',"),
    ("model.tiny.heads=3", "model.tiny: hidden=64 must be a multiple of twice heads=3."),
    ("model.tiny.kv_heads=3", "model.tiny: heads=4 must be a multiple of kv_heads=3."),
    ("run_dir=2024", "put it in quotes"),
    ("run_dir=", "run_dir='' is not possible"),
    ("train.steps=${foo}", "'foo'"),
    ("~train.steps", "nothing can be deleted"),
    ("train.steps=1,2", "gives several values"),
    ("train.steps", "not of the form key=value"),
    ("=3", "not of the form key=value"),
    ("a b=3", "not of the form key=value"),
    ("scenario=[a]", "no such scenario"),
    ("engine=opnai", "engine=opnai: no such engine. Did you mean 'openai'"),
    ("peers.judge.ulr=x", "no key 'peers.judge.ulr' (value 'x'). Did you mean 'url'?"),
    ("peers.judge.api=chat", "peers.judge.url must be set."),
    ("peers.judge=x", "peers.judge is a section; set one of its keys: url,"),
    ("peers.judge={url: 'http://u/v1', tokenizer: x}", "peers.judge: tokenizer has no effect with api=chat"),
    ("engine.remote.replicas=[somewhere]", "'somewhere' is no address; it is like http://127.0.0.1:8000/v1"),
    ("engine.remote.replicas=['http://u/v1','http://u/v1/']", "replicas has http://u/v1 twice"),
    ("cluster.engines=-1", "greater than or equal to 0"),
    ("peers.judge.url=localhost:8000", "peers.judge.url: 'localhost:8000' is no address; it is like http://"),
    ("peers.judge.url='ftp://host/v1'", "is no address"),
    ("peers.judge.url='http://host/\x1b[2Jv1'", "is no address"),
    ("peers.judge={url: 'http://u/v1', extra: {messages: 1}}", "extra cannot set ['messages']"),
    ("peers.judge={url: 'http://u/v1', api: completions, extra: {a: 1}}", "only api=chat sends it"),
    ("scenario@here=relay", "scenario=NAME"),
]


@pytest.mark.parametrize(("override", "text"), BAD, ids=[override for override, _ in BAD])
def test_a_wrong_override_is_one_error_that_says_what_is_possible(override: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([override])
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["/home/josé/run", "läufe, neu/it's", "'ré'"])
def test_letters_that_are_not_ascii_need_no_quotes(path: str) -> None:
    assert load_config(["scenario=relay", f"run_dir={path}"]).run_dir == path.strip("'")


@pytest.mark.parametrize(
    "override",
    [
        "peers.judge={{url: 'http://u/v1', key_env: {secret}}}",
        "engine.remote.url='https://me:{secret}@host/v1'",
        "engine.remote.url='https://host/v1?key={secret}'",
    ],
)
def test_a_key_that_was_given_in_the_wrong_place_is_not_shown(override: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([override.format(secret="sk-abc123")])
    assert "sk-abc123" not in str(caught.value)
    assert "key_env" in str(caught.value)


def test_what_is_trained_is_exchanged_as_tokens() -> None:
    with pytest.raises(ConfigError, match=r"engine: engine=vllm_server exchanges token ids: remote\.api must be comp"):
        load_config(["engine=vllm_server", "engine.remote.api=chat"])


def test_two_wrong_values_are_named_in_one_error() -> None:
    with pytest.raises(ConfigError, match=r"train.steps='x'.*train.seed='y'"):
        load_config(["train.steps=x", "train.seed=y"])


def test_a_scenario_checks_its_own_options() -> None:
    config = load_config(["scenario=plan_path", "scenario.options.sze=5"])
    with pytest.raises(ConfigError, match="Did you mean 'size'"):
        build_scenario(config.scenario)


def test_a_scenario_of_another_package_needs_no_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_package(tmp_path, "others", {"mas.scenarios": {"theirs": "mas.scenarios.relay:ENTRY"}})
    monkeypatch.syspath_prepend(tmp_path)
    for word in ("scenario=theirs", "scenario.name=theirs"):
        config = load_config([word, "scenario.options.skill=0.1"])
        assert config.scenario.name == "theirs"
        assert config.train == Config().train
        assert build_scenario(config.scenario).name == "relay"


def test_naming_a_scenario_chooses_its_preset() -> None:
    assert load_config(["scenario.name=relay"]) == load_config(["scenario=relay"])


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["scenario=relay", "algorithm=single_grpo", "train.target=0.5", "train.canary=false"],
        ["scenario.name=theirs", "scenario.options.sizes=[1,2]", "scenario.options.deep={a: {b: 'x y'}}"],
        [
            "algorithm=at_grpo",
            "algorithm.name=mine",
            "run_dir='odd, dir/it\\'s'",
            "model.lora.targets=[q_proj]",
            "learner.lr=1e-5",
        ],
        ["algorithm.reward.weights={right: 0.5}", "run_dir='null'"],
        ["algorithm.reward.weights={own.term: -1}", "run_dir='1e5'"],
        ["engine=vllm_server", "engine.remote.url=https://host:1/v1", "peers.judge.url='http://u:2/v1'"],
        ["peers.judge={url: 'http://u/v1', key_env: A_KEY, extra: {max_tokens: null, a: [1]}}"],
    ],
)
def test_a_configuration_can_be_written_as_overrides(words: list[str]) -> None:
    config = load_config(words)
    assert load_config(overrides_of(config)) == config


def test_plain_paths_are_written_without_quotes() -> None:
    assert overrides_of(load_config(["run_dir=/runs/a-1.b"]))[-1] == "run_dir=/runs/a-1.b"


def test_a_stored_configuration_is_read_back_with_overrides_on_top(tmp_path: Path) -> None:
    config = load_config(["scenario=relay", "train.steps=3"])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load_run_config(tmp_path) == config.model_copy(update={"run_dir": str(tmp_path)}).as_stored()
    assert load_run_config(tmp_path, ["train.eval_tasks=5"]).train.eval_tasks == 5
    with pytest.raises(ConfigError, match="a run keeps its scenario"):
        load_run_config(tmp_path, ["scenario=plan_path"])


def test_a_directory_without_a_run_is_an_error_that_names_the_nearest_run(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "config.yaml").write_text("run_dir: x")
    with pytest.raises(RunDirectoryError, match="Did you mean 'first'"):
        load_run_config(tmp_path / "frst")


def test_a_damaged_stored_configuration_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    for text in ("a: [", "[]", "3", "train: {stps: 3}"):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises((RunDirectoryError, ConfigError), match=r"config\.yaml|stps"):
            load_run_config(tmp_path)


def test_hydras_global_state_is_left_as_it_was() -> None:
    load_config(["scenario=relay"])
    with pytest.raises(ConfigError):
        load_config(["train.stps=3"])
    assert not GlobalHydra.instance().is_initialized()


def test_checking_a_configuration_loads_no_tensor_library() -> None:
    code = "import sys; from mas.config.load import load_config; load_config(['scenario=relay']); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "peft"} & set(modules)


def test_the_name_of_an_algorithm_chooses_its_preset_unless_one_is_chosen() -> None:
    assert load_config(["algorithm.name=parallel_grpo"]) == load_config(["algorithm=parallel_grpo"])
    mine = load_config(["algorithm=parallel_grpo", "algorithm.name=mine"]).algorithm
    assert (mine.name, mine.sampler.mode) == ("mine", "parallel")
    with pytest.raises(ConfigError, match=r"no such algorithm\. Did you mean 'parallel_grpo'"):
        load_config(["algorithm.name=paralel_grpo"])


@pytest.mark.parametrize(
    ("words", "fixed"),
    [
        (["algorithm=parallel_grpo", "algorithm.sampler.lookahead=episode"], "algorithm=at_grpo"),
        (["algorithm=parallel_grpo", "algorithm.sampler.commit_best=0.5"], "algorithm=at_grpo"),
        (
            ["algorithm.sampler.lookahead=action", "algorithm.sampler.continuations=2"],
            "algorithm.sampler.lookahead=turn",
        ),
        (["algorithm.loss.kl_estimator=k3"], "algorithm.loss.kl=0.1"),
        (["algorithm.loss.max_length=5"], "algorithm.loss.aggregation=seq_mean_token_sum_norm"),
        (["model.path=some/model", "model.tiny.hidden=32"], "model.path=tiny"),
        (["model.path=some/model", "model.tiny={hidden: 32}"], "model.path=tiny"),
        (["engine.vllm.max_num_seqs=64"], "engine=vllm"),
        (["engine.cpu_lora=false"], "engine=vllm"),
        (["engine=vllm", "model.max_batch=4"], "engine=transformers"),
        (["engine.remote.url=http://host/v1"], "engine=openai"),
        (["engine=openai", "engine.remote.shared_dir=/srv"], "engine=vllm_server"),
        (["engine=openai", "engine.remote.replicas=['http://host/v1']"], "engine=vllm_server"),
        (["engine=openai", "engine.restarts=1"], "engine=vllm"),
        (["algorithm=training_free", "learner.lr=1e-4"], "algorithm=parallel_grpo"),
        (["algorithm=training_free", "model.lora.rank=4"], "algorithm=parallel_grpo"),
        (
            ["algorithm=training_free", "algorithm.options.editor=quote", "algorithm.options.max_tokens=5"],
            "algorithm.options.editor=base",
        ),
    ],
)
def test_a_value_without_effect_is_refused(words: list[str], fixed: str) -> None:
    with pytest.raises(ConfigError, match="has no effect here"):
        load_config(words)
    load_config([*words, fixed])


@pytest.mark.parametrize("scenario", presets("scenario"))
def test_at_grpo_carries_the_best_candidate_on_in_every_scenario(scenario: str) -> None:
    sampler = load_config([f"scenario={scenario}", "algorithm=at_grpo"]).algorithm.sampler
    assert (sampler.mode, sampler.commit_best) == ("tree", 1.0)
    assert (
        load_config([f"scenario={scenario}", "algorithm.sampler.commit_best=0.25"]).algorithm.sampler.commit_best
        == 0.25
    )
