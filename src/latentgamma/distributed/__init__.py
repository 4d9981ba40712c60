"""Programs and batches beyond one process: models on torch.distributed, closures on Ray."""

from latentgamma.distributed.sharded_rules import ShardedRules
from latentgamma.distributed.sharding import gather, shard

__all__ = ["ShardedRules", "gather", "shard"]
