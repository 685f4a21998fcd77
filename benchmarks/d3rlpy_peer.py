"""The d3rlpy side of against_d3rlpy.py: runs in an environment that has d3rlpy, and speaks in .npz files only.

python d3rlpy_peer.py losses IN.npz OUT.npz        losses and gradients at the given weights, batch and noise
python d3rlpy_peer.py train  IN.npz OUT.npz        trains on the given data; the policy's weights come back
python d3rlpy_peer.py speed  IN.npz OUT.npz        updates per second on the given data
"""

import json
import sys
import time
from typing import Any

import d3rlpy
import numpy as np
import torch
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.torch_utility import TorchMiniBatch

Arrays = dict[str, np.ndarray]


def create(name: str, settings: dict[str, Any], observations: int, actions: int) -> Any:
    encoder = VectorEncoderFactory(settings["hidden"])
    shared = {
        "actor_encoder_factory": encoder,
        "critic_encoder_factory": encoder,
        "batch_size": settings["batch_size"],
        "gamma": settings["discount"],
        "actor_learning_rate": settings["learning_rate"],
        "critic_learning_rate": settings["learning_rate"],
    }
    if name == "bc":
        rate = settings["learning_rate"]
        config = d3rlpy.algos.BCConfig(
            batch_size=settings["batch_size"], learning_rate=rate, policy_type="stochastic", encoder_factory=encoder
        )
    elif name == "td3-bc":
        config = d3rlpy.algos.TD3PlusBCConfig(**shared, alpha=settings["alpha"])
    elif name == "iql":
        chosen = {"expectile": settings["expectile"], "weight_temp": settings["temperature"]}
        if "steps" in settings:  # the published schedule, which is not d3rlpy's default
            cosine = d3rlpy.optimizers.CosineAnnealingLRFactory(T_max=settings["steps"])
            chosen["actor_optim_factory"] = d3rlpy.optimizers.AdamFactory(lr_scheduler_factory=cosine)
        config = d3rlpy.algos.IQLConfig(**shared, **chosen, value_encoder_factory=encoder)
    else:
        config = d3rlpy.algos.CQLConfig(
            **shared,
            conservative_weight=settings["alpha"],
            alpha_threshold=0.0,
            alpha_learning_rate=0.0,
            initial_alpha=1.0,
            temp_learning_rate=0.0,
            initial_temperature=settings["temperature"],
            n_action_samples=settings["samples"],
        )
    algo = config.create(device=settings.get("device", "cpu:0"))
    algo.create_impl((observations,), actions)
    return algo


def layers(module: Any, *heads: Any) -> list[Any]:
    """The linear layers of a network: its encoder's and its head's."""
    return [m for m in module._encoder._layers if isinstance(m, torch.nn.Linear)] + list(heads)


def networks(name: str, impl: Any) -> dict[str, list[Any]]:
    modules = impl._modules
    found = {"policy": layers(modules.policy, modules.policy._fc if name == "td3-bc" else modules.policy._mu)}
    for group, functions in (("critic", modules.q_funcs), ("critic_target", modules.targ_q_funcs)):
        found |= {f"{group}{i}": layers(q, q._fc) for i, q in enumerate(functions)}
    if name == "td3-bc":
        found["policy_target"] = layers(modules.targ_policy, modules.targ_policy._fc)
    if name == "iql":
        found["value"] = layers(modules.value_func, modules.value_func._fc)
    return found


def set_weights(name: str, impl: Any, arrays: Arrays) -> None:
    with torch.no_grad():
        for network, linears in networks(name, impl).items():
            for i, linear in enumerate(linears):
                linear.weight.copy_(torch.from_numpy(arrays[f"{network}/weights/{i}"].T))
                linear.bias.copy_(torch.from_numpy(arrays[f"{network}/biases/{i}"]))
        policy = impl._modules.policy
        if name == "iql":  # d3rlpy keeps log sigma between its bounds by a sigmoid
            share = (torch.from_numpy(arrays["log_std"]) + 5.0) / 7.0
            policy._logstd.copy_(torch.logit(share)[None])
        if name == "cql":
            policy._logstd.weight.zero_()
            policy._logstd.bias.copy_(torch.from_numpy(arrays["log_std"]))


def gradients(name: str, impl: Any, wanted: tuple[str, ...]) -> Arrays:
    out: Arrays = {}
    for network, linears in networks(name, impl).items():
        if network.rstrip("01") in wanted:
            for i, linear in enumerate(linears):
                out[f"{network}/weights/{i}"] = linear.weight.grad.numpy().T.copy()
                out[f"{network}/biases/{i}"] = linear.bias.grad.numpy().copy()
    return out


def losses(name: str, settings: dict[str, Any], arrays: Arrays) -> Arrays:
    batch = {k.removeprefix("batch/"): torch.from_numpy(v) for k, v in arrays.items() if k.startswith("batch/")}
    size, actions = batch["actions"].shape
    impl = create(name, settings, batch["observations"].shape[1], actions).impl
    set_weights(name, impl, arrays)
    made = TorchMiniBatch(
        observations=batch["observations"],
        actions=batch["actions"],
        rewards=batch["rewards"][:, None],
        next_observations=batch["next_observations"],
        next_actions=batch["actions"],
        returns_to_go=torch.zeros(size, 1),
        terminals=batch["terminals"][:, None],
        intervals=torch.ones(size, 1),
        device="cpu:0",
    )
    noise = {k.removeprefix("noise/"): torch.from_numpy(v) for k, v in arrays.items() if k.startswith("noise/")}
    out: Arrays = {}

    # d3rlpy draws its noise inside; the draws are replaced by the given numbers, in the order it takes them.
    normals = [noise["target"]] if name == "td3-bc" else [noise["here"], noise["next"]] if name == "cql" else []
    torch.randn = lambda *_, **__: normals.pop(0)
    torch.distributions.Normal.rsample = lambda self, *_: self.loc + self.scale * normals.pop(0)
    if "uniform" in noise:  # (samples, batch, act) here, (batch, samples, act) there
        given = noise["uniform"].transpose(0, 1).reshape(-1, actions)
        torch.Tensor.uniform_ = lambda self, *_: self.copy_(given)

    target = impl.compute_target(made)
    out["target"] = target[:, 0].numpy()
    if name == "cql":  # d3rlpy bootstraps from the policy's mean, so the comparison goes on from the same numbers
        target = torch.from_numpy(arrays["next_value"])[:, None]
    critic = impl.compute_critic_loss(made, target)
    critic.critic_loss.backward()
    if name == "iql":
        out |= {"critic_loss": critic.q_loss.detach().numpy(), "value_loss": critic.v_loss.detach().numpy()}
    else:
        out["critic_loss"] = critic.critic_loss.detach().numpy()
    if name == "cql":
        out["penalty"] = critic.conservative_loss.detach().numpy()
    out |= {f"gradient/{k}": v for k, v in gradients(name, impl, ("critic", "value")).items()}

    if name == "cql":
        normals.append(noise["policy"])
    actor = impl.compute_actor_loss(made, impl._modules.policy(made.observations))
    impl._modules.policy.zero_grad()
    actor.actor_loss.backward()
    out["policy_loss"] = actor.actor_loss.detach().numpy()
    return out | {f"gradient/{k}": v for k, v in gradients(name, impl, ("policy",)).items()}


def logged(arrays: Arrays) -> Any:
    columns = ("observations", "actions", "rewards", "terminals", "timeouts")
    return d3rlpy.dataset.MDPDataset(*(arrays[name] for name in columns))


def fit(algo: Any, data: Any, steps: int) -> None:
    logger = d3rlpy.logging.NoopAdapterFactory()
    algo.fit(data, steps, n_steps_per_epoch=steps, logger_adapter=logger, show_progress=False)


def speed(name: str, settings: dict[str, Any], arrays: Arrays) -> Arrays:
    data = logged(arrays)
    algo = create(name, settings, arrays["observations"].shape[1], arrays["actions"].shape[1])
    fit(algo, data, 50)  # warm
    began = time.perf_counter()
    fit(algo, data, settings["speed_steps"])
    return {"rate": np.asarray(settings["speed_steps"] / (time.perf_counter() - began))}


def train(name: str, settings: dict[str, Any], arrays: Arrays) -> Arrays:
    d3rlpy.seed(settings["seed"])
    algo = create(name, settings, arrays["observations"].shape[1], arrays["actions"].shape[1])
    set_weights(name, algo.impl, arrays)
    fit(algo, logged(arrays), settings["steps"])
    out: Arrays = {}
    for i, linear in enumerate(networks(name, algo.impl)["policy"]):
        out[f"policy/weights/{i}"] = linear.weight.detach().numpy().T
        out[f"policy/biases/{i}"] = linear.bias.detach().numpy()
    return out


def main(task: str, source: str, destination: str) -> None:
    with np.load(source) as f:
        arrays = dict(f)
    name, settings = json.loads(str(arrays.pop("job")))
    np.savez(destination, **{"losses": losses, "train": train, "speed": speed}[task](name, settings, arrays))


if __name__ == "__main__":
    main(*sys.argv[1:])
