"""Tasksets of verifiers for the tests, each a module that is written into a folder: they need verifiers, and no mas."""

SUMS = '''
"""Sums of one digit: one answer, two rewards and a metric."""

import verifiers.v1 as vf


class SumsConfig(vf.TasksetConfig):
    size: int = 30


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        return float(0 < len(trace.last_reply) < 3)

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))


class Sums(vf.Taskset[SumTask, SumsConfig]):
    def load(self):
        for number in range(self.config.size):
            yield SumTask(SumData(prompt=f"{number}+1=", answer=str(number + 1)), self.config.task)


__all__ = ["Sums"]
'''
GUESS = '''
"""A number is guessed: the environment answers each guess, at most three times."""

import verifiers.v1 as vf


class GuessData(vf.TaskData):
    number: int


class GuessTask(vf.Task[GuessData]):
    @vf.reward
    async def found(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(self.data.number))


class GuessTaskset(vf.Taskset[GuessTask]):
    def load(self):
        for number in range(20):
            yield GuessTask(GuessData(prompt="Guess.", system_prompt="Numbers only.", number=number), self.config.task)


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task, agents):
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            for _ in range(2):
                if segment.terminated or segment.last_reply == str(task.data.number):
                    return
                if segment.last_reply == "break":
                    raise RuntimeError("broken on purpose")
                low = segment.last_reply.isdecimal() and int(segment.last_reply) < task.data.number
                segment = await interaction.turn("More." if low else "Less.")


__all__ = ["GuessTaskset", "GuessEnv"]
'''
TOOLS = '''
"""A word is behind a tool."""

import verifiers.v1 as vf


class Words(vf.Toolset[vf.ToolsetConfig]):
    @vf.tool
    async def look(self, number: int) -> str:
        """The word of a number."""
        return f"word-{number}"


class LookData(vf.TaskData):
    number: int


class LookTask(vf.Task[LookData]):
    @classmethod
    def toolsets(cls, config):
        return [Words(vf.ToolsetConfig())]

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == f"word-{self.data.number}")


class LookTaskset(vf.Taskset[LookTask]):
    def load(self):
        for number in range(3):
            yield LookTask(LookData(prompt=f"Which word has the number {number}?", number=number), self.config.task)


__all__ = ["LookTaskset"]

if __name__ == "__main__":
    Words.run()
'''
TWO = '''
"""Two agents, which a team cannot play."""

import verifiers.v1 as vf


class Task(vf.Task[vf.TaskData]):
    pass


class TwoTaskset(vf.Taskset[Task]):
    def load(self):
        yield Task(vf.TaskData(prompt="x"), self.config.task)


class TwoConfig(vf.EnvConfig):
    first: vf.AgentConfig = vf.AgentConfig()
    second: vf.AgentConfig = vf.AgentConfig()


class TwoEnv(vf.Env[TwoConfig]):
    async def run(self, task, agents):
        await agents.first.run(task)


__all__ = ["TwoTaskset", "TwoEnv"]
'''
ALL = {"sums": SUMS, "guess": GUESS, "look_up": TOOLS, "two": TWO}
