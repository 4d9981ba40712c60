"""Programs and batches beyond one process: models on torch.distributed, closures on Ray.

Each name is imported when it is first used: tables need no torch, and models no Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentgamma.distributed.arrow_tables import close_table
    from latentgamma.distributed.atom_sharded_rules import AtomShardedRules
    from latentgamma.distributed.checkpoint import load_checkpoint, save_checkpoint
    from latentgamma.distributed.cost_model import ShardingPlan, plan
    from latentgamma.distributed.fsdp import fully_shard
    from latentgamma.distributed.parquet_closures import TableClosures, close_parquet
    from latentgamma.distributed.program_shards import ProgramShard, load_shard
    from latentgamma.distributed.ray_executor import RayExecutor
    from latentgamma.distributed.sharded_oracle import oracle
    from latentgamma.distributed.sharded_rules import ShardedRules
    from latentgamma.distributed.sharding import gather, shard

__all__ = [
    "AtomShardedRules",
    "ProgramShard",
    "RayExecutor",
    "ShardedRules",
    "ShardingPlan",
    "TableClosures",
    "close_parquet",
    "close_table",
    "fully_shard",
    "gather",
    "load_checkpoint",
    "load_shard",
    "oracle",
    "plan",
    "save_checkpoint",
    "shard",
]

_MODULES = {
    "AtomShardedRules": "atom_sharded_rules",
    "ProgramShard": "program_shards",
    "RayExecutor": "ray_executor",
    "ShardedRules": "sharded_rules",
    "ShardingPlan": "cost_model",
    "TableClosures": "parquet_closures",
    "close_parquet": "parquet_closures",
    "close_table": "arrow_tables",
    "fully_shard": "fsdp",
    "gather": "sharding",
    "load_checkpoint": "checkpoint",
    "load_shard": "program_shards",
    "oracle": "sharded_oracle",
    "plan": "cost_model",
    "save_checkpoint": "checkpoint",
    "shard": "sharding",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'latentgamma.distributed' has no attribute {name!r}")
    return getattr(importlib.import_module(f"latentgamma.distributed.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
