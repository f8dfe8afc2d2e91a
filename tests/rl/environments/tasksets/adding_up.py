"""Several turns: the model may have a tool add numbers before it answers."""

import verifiers.v1 as vf

__all__ = ["AddingUp"]


class Row(vf.TaskData):
    answer: str


class TaskConfig(vf.TaskConfig):
    tools: vf.ToolsetConfig = vf.ToolsetConfig()


class Sums(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = "sums"

    @vf.tool
    async def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)


class SumTask(vf.Task[Row, vf.State, TaskConfig]):
    @classmethod
    def toolsets(cls, config: TaskConfig) -> list[vf.Toolset]:
        return [Sums(config.tools)]

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.nodes[-1].message.content == self.data.answer)


class TasksetConfig(vf.TasksetConfig):
    task: TaskConfig = TaskConfig()


class AddingUp(vf.Taskset[SumTask, TasksetConfig]):
    INFINITE = True

    def load(self):
        n = 25
        while True:
            yield SumTask(Row(prompt=f"What is {n} + 17?", answer=str(n + 17)), self.config.task)
            n += 1


if __name__ == "__main__":
    Sums.run()
