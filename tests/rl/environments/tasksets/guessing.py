"""Several turns, in which a program is the user: higher or lower, until the number is found."""

import verifiers.v1 as vf

__all__ = ["GuessEnv", "Guessing"]


class Row(vf.TaskData):
    number: int


class GuessTask(vf.Task[Row]):
    @vf.reward
    async def quick(self, trace: vf.Trace) -> float:
        said = [node.message.content for node in trace.nodes if node.sampled]
        return (said[-1] == str(self.data.number)) / len(said)


class GuessConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task: GuessTask, agents: vf.Agents) -> None:
        async with agents.agent.interaction(task) as talk:
            segment = await talk.turn("Guess a number from 1 to 100.")
            while not segment.terminated and segment.last_reply != str(task.data.number):
                guess = int(segment.last_reply)
                segment = await talk.turn("Higher." if guess < task.data.number else "Lower.")


class Guessing(vf.Taskset[GuessTask]):
    def load(self):
        for n in (42, 7, 99):
            yield GuessTask(Row(number=n), self.config.task)
