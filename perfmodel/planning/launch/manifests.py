"""Commands as files of a cluster: plain Kubernetes, values of llm-d's modelservice chart, a graph of Dynamo."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from perfmodel.planning.launch.commands import Command

_IMAGES = {"vllm": "vllm/vllm-openai", "sglang": "lmsysorg/sglang", "trtllm": "nvcr.io/nvidia/tensorrt-llm/release"}
#: Images of Dynamo; which engine they hold goes with Dynamo's own release.
_DYNAMO = "nvcr.io/nvidia/ai-dynamo/{}-runtime"
_RUNTIMES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrtllm"}
_PORTS = {"vllm": 8000, "sglang": 30000, "trtllm": 8000}
#: Where a container finds the files of its configuration.
_MOUNT = "/etc/perfmodel"


def image(engine: str, release: str) -> str:
    """Return the public image of a release."""
    numbers = release if release.count(".") != 1 else f"{release}.0"
    tag = numbers if engine == "trtllm" else f"v{numbers}"
    return f"{_IMAGES[engine]}:{tag if release else 'latest'}"


def _name(one: Command) -> str:
    bare = re.sub(r"[^a-z0-9]+", "-", one.role.model.rpartition("/")[2].casefold()).strip("-")
    return "-".join(filter(None, (bare[:45].strip("-"), one.role.name)))


def _arguments(one: Command) -> list[str]:
    """Return the words of a command, files where a container finds them."""
    return [f"{_MOUNT}/{word}" if word in one.files else word for word in one.words]


def _container(engine: str, release: str, command: Command) -> dict[str, Any]:
    words = _arguments(command)
    programs = 3 if engine == "sglang" else 1
    # A pod's address, not the loopback that is the default of some.
    host = [] if "--host" in words else ["--host", "0.0.0.0"]
    container: dict[str, Any] = {
        "name": "engine",
        "image": image(engine, release),
        "command": words[:programs],
        "args": [*words[programs:], *host, "--port", str(_PORTS[engine])],
        "ports": [{"name": "http", "containerPort": _PORTS[engine]}],
        "resources": {"limits": {"nvidia.com/gpu": command.role.ranks}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10},
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],
    }
    if command.files:
        container["volumeMounts"].append({"name": "configuration", "mountPath": _MOUNT})
    return container


def kubernetes(engine: str, release: str, commands: list[Command]) -> list[dict[str, Any]]:
    """Return a Deployment and a Service of each role, with the files that it reads.

    Parameters
    ----------
    engine, release : str
    commands : list of Command

    Returns
    -------
    list of dict
    """
    manifests: list[dict[str, Any]] = []
    for command in commands:
        name = _name(command)
        labels = {"app.kubernetes.io/name": name}
        volumes: list[dict[str, Any]] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
        if command.files:
            volumes.append({"name": "configuration", "configMap": {"name": name}})
            config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(command.files)}
            manifests.append(config)
        pod = {"containers": [_container(engine, release, command)], "volumes": volumes}
        spec = {
            "replicas": command.role.workers,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }
        manifests.append(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels}, "spec": spec}
        )
        ports = [{"name": "http", "port": _PORTS[engine], "targetPort": "http"}]
        service = {"selector": labels, "ports": ports}
        manifests.append(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": service}
        )
    return manifests


def llm_d(engine: str, release: str, commands: list[Command]) -> dict[str, Any]:
    """Return values of llm-d's modelservice chart (llm-d-incubation/llm-d-modelservice values.yaml @024c0f2).

    The chart's ``custom`` command leaves every flag to the container, so that degrees stand there once more.

    Parameters
    ----------
    engine, release : str
    commands : list of Command

    Returns
    -------
    dict
    """
    model = commands[0].role.model
    values: dict[str, Any] = {"modelArtifacts": {"name": model, "uri": f"hf://{model}"}}
    pools = {command.role.name or "decode": command for command in commands}
    for pool in ("decode", "prefill"):
        if (command := pools.get(pool)) is None:
            values[pool] = {"replicas": 0}
            continue
        role = command.role
        container = {
            "name": engine,
            "image": image(engine, release),
            "modelCommand": "custom",
            "command": [command.words[0]],
            "args": _arguments(command)[1:],
            "resources": {"limits": {"nvidia.com/gpu": role.ranks}, "requests": {"nvidia.com/gpu": role.ranks}},
        }
        data = role.attention_dp * role.dp
        values[pool] = {
            "replicas": role.workers,
            "parallelism": {"tensor": role.tp, "data": data, "dataLocal": data},
            "containers": [container],
        }
    if len(commands) > 1:
        values["routing"] = {"proxy": {"connector": "nixlv2"}}
    return values


#: Modules that Dynamo starts as workers, and how it is told the role and the model.
_WORKERS = {"vllm": "dynamo.vllm", "sglang": "dynamo.sglang", "trtllm": "dynamo.trtllm"}
#: Flags of trtllm-serve by those of Dynamo's worker, which have hyphens (backend_args.py @0a6a115).
_HYPHENS = {
    "--tp_size": "--tensor-parallel-size",
    "--pp_size": "--pipeline-parallel-size",
    "--ep_size": "--expert-parallel-size",
    "--max_batch_size": "--max-batch-size",
    "--max_num_tokens": "--max-num-tokens",
    "--max_seq_len": "--max-seq-len",
    "--kv_cache_free_gpu_memory_fraction": "--free-gpu-memory-fraction",
    "--free_gpu_memory_fraction": "--free-gpu-memory-fraction",
}


def _dynamo_arguments(engine: str, command: Command) -> list[str]:
    """Return the arguments of a worker of Dynamo, which takes the engine's own but for model and role."""
    words = list(command.words[3 if engine == "sglang" else 1 :])
    if engine == "sglang":
        return words
    if engine == "vllm":
        rest = words[2:]  # after "serve MODEL"
        if "--kv-transfer-config" in rest:
            at = rest.index("--kv-transfer-config")
            del rest[at : at + 2]
        role = [f"--is-{command.role.name}-worker"] if command.role.name else []
        return ["--model", command.role.model, *rest, *role]
    rest = [_HYPHENS.get(word, word) for word in words[1:]]
    # Its switch has no flag there, and the file would have to be mounted.
    at = rest.index("--enable_chunked_prefill")
    config = json.dumps({"enable_chunked_prefill": True, **command.config}, separators=(",", ":"))
    rest[at : at + 1] = ["--override-engine-args", config]
    if "--extra_llm_api_options" in rest:
        at = rest.index("--extra_llm_api_options")
        del rest[at : at + 2]
    role = ["--disaggregation-mode", command.role.name] if command.role.name else []
    return ["--model", command.role.model, *rest, *role]


def dynamo(engine: str, commands: list[Command]) -> dict[str, Any]:
    """Return a DynamoGraphDeployment, v1alpha1.

    Parameters
    ----------
    engine : str
    commands : list of Command

    Returns
    -------
    dict
    """
    services: dict[str, Any] = {"Frontend": {"componentType": "frontend", "replicas": 1}}
    for command in commands:
        words = ["python3", "-m", _WORKERS[engine], *_dynamo_arguments(engine, command)]
        worker: dict[str, Any] = {
            "componentType": "worker",
            "replicas": command.role.workers,
            "resources": {"limits": {"gpu": str(command.role.ranks)}},
            "extraPodSpec": {
                "mainContainer": {
                    "image": _DYNAMO.format(_RUNTIMES[engine]),
                    "command": ["sh", "-c"],
                    "args": [shlex.join(words)],
                }
            },
        }
        if command.role.name:
            worker["subComponentType"] = command.role.name
        services[f"{command.role.name.title() or 'Worker'}"] = worker
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": _name(commands[0]).removesuffix(f"-{commands[0].role.name}")},
        "spec": {"services": services},
    }
