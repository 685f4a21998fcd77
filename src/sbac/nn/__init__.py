"""Building blocks: pytrees of arrays with pure functions on them."""

from sbac.nn.behaviour import Behaviour as Behaviour
from sbac.nn.behaviour import BehaviourKind as BehaviourKind
from sbac.nn.critic import Critic as Critic
from sbac.nn.gaussian import ACTION_EPSILON as ACTION_EPSILON
from sbac.nn.gaussian import DeterministicPolicy as DeterministicPolicy
from sbac.nn.gaussian import Gaussian as Gaussian
from sbac.nn.gaussian import GaussianPolicy as GaussianPolicy
from sbac.nn.gaussian import pre_tanh as pre_tanh
from sbac.nn.mlp import MLP as MLP
from sbac.nn.mlp import Precision as Precision
from sbac.nn.mlp import polyak as polyak
from sbac.nn.mlp import precision as precision
from sbac.nn.mmd import mmd as mmd
from sbac.nn.optim import Metrics as Metrics
from sbac.nn.optim import Multiplier as Multiplier
from sbac.nn.optim import Trained as Trained
from sbac.nn.optim import half_cosine as half_cosine
from sbac.nn.typed import Tree as Tree
from sbac.nn.typed import choose as choose
from sbac.nn.typed import gradient as gradient
from sbac.nn.typed import take as take
from sbac.nn.vae import ActionVAE as ActionVAE
from sbac.nn.vae import GaussianVAE as GaussianVAE
from sbac.nn.vae import VAEEnsemble as VAEEnsemble
from sbac.nn.vae import kl_divergence as kl_divergence
from sbac.nn.vae import prior_codes as prior_codes
