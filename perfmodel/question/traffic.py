"""Lengths of a question: what is given, images, the rounds that a closed loop starts with."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.errors import UserError
from perfmodel.question.options import Options
from perfmodel.specs import catalog
from perfmodel.specs.types import (
    Model,
    Provenance,
    Scenario,
    Traffic,
)

#: Rounds that public benchmarks run: ten prompts a client.
BENCHMARK_ROUNDS = 10.0
#: Where nothing says how many rounds there are.
LONG_RUN = Traffic("", 1.0, 1.0).rounds


def traffic_of(architecture: Model, options: Options) -> tuple[Traffic, Model, list[str]]:
    """Return the traffic that options ask for, the model with the images of its prompts, and what is assumed.

    Parameters
    ----------
    architecture : Model
    options : Options

    Returns
    -------
    tuple
    """
    assumed = []
    if options.prompt is not None and options.output is not None:
        traffic = replace(
            catalog.load_traffic("chat"), name="given", prompt=float(options.prompt), output=float(options.output)
        )
        traffic = replace(traffic, provenance={})
    else:
        traffic = catalog.load_traffic(options.traffic or "chat")
        if options.traffic is None:
            assumed.append(f"traffic chat: {traffic.prompt:g} tokens in, {traffic.output:g} out")
    assumed += thousands(architecture, ("prompt", options.prompt))
    if options.concurrency is None:
        assumed.append("concurrency 1")
    traffic = replace(traffic, concurrency=float(options.concurrency or 1))
    if architecture.task == "draft":
        raise UserError(f"{architecture.name} drafts for another model: name that one, and give this as --draft")
    if options.images is not None:
        architecture, traffic, of_images = _with_images(architecture, traffic, options.images)
        assumed.append(of_images)
    return traffic, architecture, assumed


def started(scenario: Scenario, steady: bool) -> Scenario:
    """Return a closed loop that starts as public benchmarks do: all clients at once, for ten rounds.

    Parameters
    ----------
    scenario : Scenario
        What says itself how many rounds there are stays as it is.
    steady : bool
        Whether the start is to be left out.

    Returns
    -------
    Scenario
    """
    traffic = scenario.traffic
    if float(traffic.rounds) != LONG_RUN:
        if steady:
            raise UserError(
                f"--steady: traffic.rounds={traffic.rounds:g} says how the loop starts; leave one of them out"
            )
        return scenario
    if scenario.model.task == "pool" or float(traffic.concurrency) == 1:
        idle = ("--steady did not enter this answer: it counts for several clients that decode",) if steady else ()
        return replace(scenario, warnings=(*scenario.warnings, *idle))
    said = "times of the long run, without a start"
    if not steady:
        traffic = replace(traffic, rounds=BENCHMARK_ROUNDS)
        said = (
            f"times of a benchmark: all clients start at once, {BENCHMARK_ROUNDS:g} rounds; --steady leaves the start "
            "out, and rates, power and cost are those of the long run"
        )
    return replace(scenario, traffic=traffic, assumed=(*scenario.assumed, said))


def thousands(model: Model, *lengths: tuple[str, float | None]) -> list[str]:
    """Return what to say of lengths that were meant as a model's context and missed it: k is 1,000 and Ki 1,024.

    Parameters
    ----------
    model : Model
    *lengths : tuple of str and float or None
        Name and tokens.

    Returns
    -------
    list of str
    """
    most = float(model.max_context)
    return [
        f"{name} {length:,.0f} tokens, for k is 1,000; the model's {most:,.0f} are {most / 1024:g}Ki"
        for name, length in lengths
        if length is not None and length != most and length / 1000 == most / 1024
    ]


def _with_images(model: Model, traffic: Traffic, images: float) -> tuple[Model, Traffic, str]:
    """Return model and traffic of requests with so many images each, and what is assumed of those."""
    vision = model.vision
    if vision is None:
        raise UserError(f"--images {images:g}: {model.name} has no encoder of images that its file describes")
    tokens = float(vision.tokens) * images
    size = "of the size that the file gives, else of 1,024 x 1,024 pixels"
    said = f"{images:g} images of {float(vision.tokens):,.0f} tokens a request, {size}"
    model = replace(model, vision=replace(vision, images=float(images)))
    if any(run.attention is not None and run.attention.cross is not None for run in model.layers):
        layers = tuple(
            replace(run, attention=replace(run.attention, cross=tokens))
            if run.attention is not None and run.attention.cross is not None
            else run
            for run in model.layers
        )
        return replace(model, layers=layers), traffic, f"{said}, met by cross-attention"
    provenance = {**traffic.provenance, "prompt": Provenance("text and images", "derived")}
    prompt = traffic.prompt + tokens
    return model, replace(traffic, prompt=prompt, provenance=provenance), f"{said}, added to the prompt"
