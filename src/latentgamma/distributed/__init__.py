"""Programs and batches beyond one process: models on torch.distributed, closures on Ray."""

from latentgamma.distributed.checkpoint import load_checkpoint, save_checkpoint
from latentgamma.distributed.fsdp import fully_shard
from latentgamma.distributed.sharded_rules import ShardedRules
from latentgamma.distributed.sharding import gather, shard

__all__ = [
    "ShardedRules",
    "fully_shard",
    "gather",
    "load_checkpoint",
    "save_checkpoint",
    "shard",
]
