"""One turn: the model says a number back."""

import verifiers.v1 as vf

__all__ = ["SayingNumbers"]


class Row(vf.TaskData):
    answer: str


class SayTask(vf.Task[Row]):
    @vf.reward
    async def same(self, trace: vf.Trace) -> float:
        assert "break" not in trace.nodes[-1].message.content
        return float(trace.nodes[-1].message.content == self.data.answer)

    @vf.reward(weight=0.5)
    async def brief(self, trace: vf.Trace) -> float:
        return float(len(trace.nodes[-1].message.content) == 1)


class SayingNumbers(vf.Taskset[SayTask]):
    def load(self):
        for n in range(5):
            yield SayTask(Row(prompt=f"Say {n}.", system_prompt="Be brief.", answer=str(n)), self.config.task)
