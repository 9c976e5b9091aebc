"""Layers and model surgery: normalization with named statistics, and prepared private copies of classifiers."""

from ttc.nn.equalization import Equalization
from ttc.nn.normalization import BatchStatisticsNorm, BlendNorm, SourceNorm, StatisticsNorm
from ttc.nn.parked_domain import ParkedDomain, domain_tensors, flatten_domain, set_domain_
from ttc.nn.pooling import (
    PooledNorm,
    discount_pools_,
    pooled_layers,
    pools_have_changed,
    restart_pools_,
    restore_pools,
    set_pool_tolerance_,
)
from ttc.nn.preparation import (
    below_top,
    blended_copy,
    copy_with_trainable_norms,
    copy_with_trainable_parameters,
    frozen_copy,
    source_classifier,
)
from ttc.nn.renormalization import BatchRenorm
from ttc.nn.sharpness import Sharpness
from ttc.nn.source_images import require_source_images
from ttc.nn.stream_statistics import EmaNorm, RobustNorm, RunningNorm, WindowNorm, track_statistics
from ttc.nn.surgery import Statistics, replace_batch_norms_, replace_norms_, source_statistics

__all__ = [
    "BatchRenorm",
    "BatchStatisticsNorm",
    "BlendNorm",
    "EmaNorm",
    "Equalization",
    "ParkedDomain",
    "PooledNorm",
    "RobustNorm",
    "RunningNorm",
    "Sharpness",
    "SourceNorm",
    "Statistics",
    "StatisticsNorm",
    "WindowNorm",
    "below_top",
    "blended_copy",
    "copy_with_trainable_norms",
    "copy_with_trainable_parameters",
    "discount_pools_",
    "domain_tensors",
    "flatten_domain",
    "frozen_copy",
    "pooled_layers",
    "pools_have_changed",
    "replace_batch_norms_",
    "replace_norms_",
    "require_source_images",
    "restart_pools_",
    "restore_pools",
    "set_domain_",
    "set_pool_tolerance_",
    "source_classifier",
    "source_statistics",
    "track_statistics",
]
