"""A second simulator, from queueing first principles: one replica, one event after the other, no table of step times.

Every step asks the machine's operators for its time at the batch and the context of that step, and every prompt for its
own prefill.  Nothing is skipped: each step is one pass through the loop, and each token is noted when it comes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfmodel.machines import speculation
from perfmodel.machines.base import machine_of
from perfmodel.serving.cache_bytes import request_bytes
from perfmodel.serving.fit import fit
from perfmodel.specs.types import Scenario


@dataclass
class Job:
    """A request: what it asks, and when it was met."""

    sent: float
    prompt: int
    output: int
    left: float = 0.0
    brought: int = 0
    tokens: list[float] = field(default_factory=list)


class Operators:
    """Step and prefill times asked from the operators, remembered by batch and by tokens to 1 %."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.machine = scenario, machine_of(scenario.system)
        self.steps: dict[tuple[int, int], float] = {}
        self.prompts: dict[tuple[int, int], tuple[float, float]] = {}
        self.slots: dict[tuple[int, int], tuple[float, float, float]] = {}
        self.sizes: dict[int, float] = {}
        self.front = float(self.machine.front_end(scenario.system).request)
        self.stream = float(self.machine.front_end(scenario.system).stream)
        self.pool = float(fit(scenario, 1.0).room)

    def step(self, batch: int, context: float) -> float:
        near = round(np.log(max(1.0, context)) / 0.01)
        if (batch, near) not in self.steps:
            one = speculation.decode(self.machine, self.scenario, float(batch), float(np.exp(near * 0.01)))
            self.steps[batch, near] = max(float(one.step.time), batch * self.stream)
        return self.steps[batch, near]

    def prefill(self, prompt: float, coscheduled: int) -> tuple[float, float]:
        """Time that a prompt takes from decoding, and until its group's first tokens."""
        near = round(np.log(max(1.0, prompt)) / 0.01)
        if (coscheduled, near) not in self.prompts:
            first, taken = speculation.prefill(
                self.machine, self.scenario, 1.0, 1000.0, float(np.exp(near * 0.01)), float(coscheduled)
            )
            self.prompts[coscheduled, near] = float(taken), float(first.time)
        return self.prompts[coscheduled, near]

    def slot(self, prompt: float, coscheduled: int) -> tuple[float, float, float]:
        """Time until the next prompt can start, that the prompt takes from decoding, and until its first token."""
        near = round(np.log(max(1.0, prompt)) / 0.01)
        if (coscheduled, near) not in self.slots:
            tokens = np.array([[float(np.exp(near * 0.01))]])
            coscheduled_of = np.array([[float(coscheduled)]])
            first, taken = speculation.prefill(
                self.machine, self.scenario, coscheduled_of, 1000.0, tokens, coscheduled_of
            )
            latency = np.broadcast_to(np.asarray(first.time, dtype=float), (1, 1))
            taken = np.broadcast_to(np.asarray(taken, dtype=float), (1, 1))
            slot = self.machine.next_prompt(self.scenario, coscheduled_of, tokens, latency, taken)
            self.slots[coscheduled, near] = float(slot[0, 0]), float(taken[0, 0]), float(latency[0, 0])
        return self.slots[coscheduled, near]

    def size(self, tokens: int) -> float:
        if tokens not in self.sizes:
            self.sizes[tokens] = float(request_bytes(self.scenario, float(tokens)))
        return self.sizes[tokens]


def run(
    operators: Operators,
    prompt: Any,
    output: Any,
    *,
    arrival: Any = None,
    clients: int = 0,
    cap: int,
    budget: float,
    grows: bool,
) -> list[Job]:
    """Serve requests in order on a replica whose prefill alternates with decoding, and note their tokens."""
    jobs = [Job(0.0, max(1, round(p)), max(1, round(d))) for p, d in zip(prompt, output, strict=True)]
    coming: list[tuple[float, int]] = []
    following = iter(range(len(jobs)))

    def send(at: float) -> None:
        one = next(following, None)
        if one is not None:
            jobs[one].sent = at
            heapq.heappush(coming, (at + operators.front, one))

    if arrival is None:
        for _ in range(clients):
            send(0.0)
    else:
        for one, at in enumerate(arrival):
            jobs[one].sent = at
            heapq.heappush(coming, (at + operators.front, one))
    now, ended = 0.0, 0
    queue: list[Job] = []
    entering: list[Job] = []
    ready: list[tuple[float, Job]] = []
    running: list[Job] = []

    def holds(job: Job) -> float:
        return operators.size(job.prompt + max(1, job.brought) if grows else job.prompt + job.output)

    while ended < len(jobs):
        while coming and coming[0][0] <= now:
            queue.append(jobs[heapq.heappop(coming)[1]])
        running += [job for at, job in ready if at <= now]
        ready = [(at, job) for at, job in ready if at > now]
        inside = [*running, *entering, *(job for _, job in ready)]
        if grows:
            grown = sum(operators.size(job.prompt + job.brought + 1) for job in running)
            grown += sum(holds(job) for job in inside if job not in running)
            while grown > operators.pool and len(running) > 1:
                lost = running.pop()
                inside.remove(lost)
                grown -= operators.size(lost.prompt + lost.brought + 1)
                queue.insert(0, lost)
        held = sum(holds(job) for job in inside)
        while queue and len(inside) < cap:
            job = queue[0]
            if held + holds(job) + (len(running) * operators.size(1) / 16 if grows else 0.0) > operators.pool:
                break
            job.left = job.prompt + job.brought
            entering.append(queue.pop(0))
            inside.append(job)
            held += holds(job)
        room, parts, through = budget, [], []
        while entering and room > 0:
            job = entering[0]
            taken = min(room, job.left)
            parts.append((job, taken / (job.prompt + job.brought)))
            room, job.left = room - taken, job.left - taken
            if job.left > 0:
                break
            through.append(entering.pop(0))
        span = sum(share * operators.prefill(job.prompt + job.brought, len(parts))[0] for job, share in parts)
        prefilled = span
        if running:
            span += operators.step(len(running), float(np.mean([job.prompt + job.brought - 1 for job in running])))
        if span == 0.0:
            now = min([at for at, _ in coming[:1]] + [at for at, _ in ready])
            continue
        now += span
        finished = []
        for job in running:
            job.brought += 1
            job.tokens.append(now)
            if job.brought == job.output:
                finished.append(job)
        for job in through:
            taken, first = operators.prefill(job.prompt + job.brought, len(through))
            # The group goes through the stages as one, and each stage takes its share of the work.
            at = now + max(0.0, prefilled * (first / (len(through) * taken) - 1))
            job.brought += 1
            job.tokens.append(at)
            if job.brought == job.output:
                finished.append(job)
            else:
                ready.append((at, job))
        for job in finished:
            if job in running:
                running.remove(job)
            ended += 1
            if arrival is None:
                # The next request comes when the step after the last token has begun.
                send(float(np.nextafter(job.tokens[-1], np.inf)))
    return jobs


def ride(operators: Operators, prompt: Any, output: Any, arrival: Any) -> list[Job]:
    """Serve requests where prompts ride along with decoding, one after the other, and slow the steps meanwhile."""
    jobs = [Job(at, max(1, round(p)), max(1, round(d))) for at, p, d in zip(arrival, prompt, output, strict=True)]
    waiting = list(jobs)
    ready: list[tuple[float, Job]] = []
    running: list[Job] = []
    now, free, slow, ended = 0.0, 0.0, 1.0, 0
    held, room_from = 0.0, 0.0
    end = np.inf

    def enter(at: float) -> None:
        """Let in every prompt whose turn comes before a time, and for whose full length there is room."""
        nonlocal free, slow, held
        while waiting and (begins := max(free, waiting[0].sent, room_from)) <= at:
            if held + operators.size(waiting[0].prompt + waiting[0].output) > operators.pool:
                break
            job = waiting.pop(0)
            held += operators.size(job.prompt + job.output)
            slot, taken, first = operators.slot(job.prompt, len(running) + 1)
            slow = 1 / (1 - min(0.9, taken / slot)) if running else 1.0
            free = begins + slot
            ready.append((begins + first, job))

    def leave(job: Job) -> None:
        nonlocal held, room_from, ended
        held -= operators.size(job.prompt + job.output)
        ended += 1
        if waiting and max(free, waiting[0].sent) <= now:
            # Its turn had come: it waited for room.
            room_from = now

    while ended < len(jobs):
        enter(now)
        for at, job in [pair for pair in ready if pair[0] <= now]:
            ready.remove((at, job))
            job.brought = 1
            job.tokens.append(at)
            if job.output == 1:
                leave(job)
            else:
                running.append(job)
        if not running:
            now = min([at for at, _ in ready] + ([max(free, waiting[0].sent)] if waiting else []), default=end)
            continue
        context = float(np.mean([job.prompt + job.brought - 1 for job in running]))
        span = operators.step(len(running), context) * (slow if now < free else 1.0)
        # Prompts whose turn comes during the step find it under way.
        enter(now + span)
        now += span
        for job in list(running):
            job.brought += 1
            job.tokens.append(now)
            if job.brought == job.output:
                running.remove(job)
                leave(job)
    return jobs
