"""Deep Q-learning (Mnih et al., 2015) of balancing a pole on a cart (Barto et al., 1983).

A network predicts the return of each action; it is trained on transitions that are drawn from a
replay memory, towards rewards and the predictions of a target network that follows it.

    python examples/dqn.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nova as lib
from nova import nn

ACTIONS = 2
DISCOUNT = 0.98


class QNetwork(nn.Module):
    """The return of each action in a state."""

    def __init__(self, features: int = 4, width: int = 64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, ACTIONS),
        )  # fmt: skip

    def forward(self, state: Any) -> Any:
        return self.layers(state)


def td_loss(model: Any, states: Any, chosen: Any, returns: Any) -> Any:
    """The Huber loss of the returns of the actions that were taken; `chosen` is one-hot."""
    return nn.HuberLoss()((model(states) * chosen).sum(1), returns)


class CartPole:
    """A cart of 1 kg and a pole of 0.1 kg and 1 m, pushed left or right 50 times a second."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.state = np.zeros(4)
        self.steps = 0

    def reset(self) -> np.ndarray:
        self.state, self.steps = self.rng.uniform(-0.05, 0.05, 4), 0
        return self.state.astype("f4")

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        """The next state, the reward, and whether the pole has fallen."""
        _, speed, angle, angular_speed = self.state
        force = 10.0 if action else -10.0
        sine, cosine = np.sin(angle), np.cos(angle)
        push = (force + 0.05 * angular_speed**2 * sine) / 1.1
        angular_pull = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        pull = push - 0.05 * angular_pull * cosine / 1.1
        self.state = self.state + 0.02 * np.array([speed, pull, angular_speed, angular_pull])
        self.steps += 1
        fallen = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21)
        return self.state.astype("f4"), 1.0, fallen


class Memory:
    """The last transitions: state, action, reward, next state, whether the episode ended."""

    def __init__(self, size: int, features: int = 4):
        self.states, self.nexts = (np.zeros((size, features), "f4") for _ in range(2))
        self.actions = np.zeros(size, np.int64)
        self.rewards, self.ends = (np.zeros(size, "f4") for _ in range(2))
        self.count = 0

    def add(self, state: Any, action: int, reward: float, after: Any, ended: bool) -> None:
        i = self.count % len(self.states)
        self.states[i], self.actions[i], self.rewards[i] = state, action, reward
        self.nexts[i], self.ends[i] = after, ended
        self.count += 1

    def draw(self, batch: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        i = rng.integers(0, min(self.count, len(self.states)), batch)
        return self.states[i], self.actions[i], self.rewards[i], self.nexts[i], self.ends[i]


def returns_of(rewards: np.ndarray, predicted: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The reward, and the discounted best return after it unless the episode ended."""
    return (rewards + DISCOUNT * predicted.max(1) * (1 - ends)).astype("f4")


def main(episodes: int = 150, batch: int = 64, seed: int = 0) -> list[int]:
    """Learn; returns how many steps each episode lasted."""
    rng = np.random.default_rng(seed)
    nn.manual_seed(seed)
    model, target = QNetwork(), QNetwork()
    target.load_state_dict(model.state_dict())
    step = lib.train_step(model, td_loss, lib.optim.Adam(model.parameters(), 1e-3))
    act, predict = lib.jit(model), lib.jit(target)
    game, memory, lengths = CartPole(rng), Memory(10_000), []
    for episode in range(episodes):
        state, chance = game.reset(), max(0.02, 1 - episode / 60)
        for _ in range(300):
            explores = rng.random() < chance
            action = int(rng.integers(ACTIONS)) if explores else int(act(state[None])[0].argmax())
            after, reward, fallen = game.step(action)
            memory.add(state, action, reward, after, fallen)
            state = after
            if memory.count >= 500:
                states, actions, rewards, nexts, ends = memory.draw(batch, rng)
                returns = returns_of(rewards, predict(nexts), ends)
                step(states, np.eye(ACTIONS, dtype="f4")[actions], returns)
                if memory.count % 200 == 0:
                    target.load_state_dict(model.state_dict())
            if fallen:
                break
        lengths.append(game.steps)
        if episode % 10 == 9:
            print(f"episode {episode + 1}: {np.mean(lengths[-10:]):.0f} steps")
    return lengths


if __name__ == "__main__":
    main()
