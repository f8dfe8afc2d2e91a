"""Three turns, whatever the model says; the reward is how much it said."""

import verifiers.v1 as vf

__all__ = ["TalkEnv", "Talking"]


class TalkTask(vf.Task):
    @vf.reward
    async def much(self, trace: vf.Trace) -> float:
        return float(sum(len(node.message.content or "") for node in trace.nodes if node.sampled))


class TalkConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig()


class TalkEnv(vf.Env[TalkConfig]):
    async def run(self, task: TalkTask, agents: vf.Agents) -> None:
        async with agents.agent.interaction(task) as talk:
            await talk.turn()
            await talk.turn("Go on.")
            await talk.turn("And then?")


class Talking(vf.Taskset[TalkTask]):
    def load(self):
        yield TalkTask(vf.TaskData(prompt="Tell me.", system_prompt="Talk."), self.config.task)
