"""What a rank holds of an original parameter that lies inside a flat parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.fsdp._flat_param import FlatParameter, FlatParamHandle

from fsdp_cts_sdk import Model, Parameter, Placement, flat, whole
from fsdp_cts_sdk.model import Slot


@dataclass(frozen=True)
class FlatView:
    """One original parameter: the handle it belongs to and its number there."""

    name: str
    handle: FlatParamHandle
    index: int

    @property
    def flat(self) -> FlatParameter:
        return self.handle.flat_param

    @property
    def shape(self) -> torch.Size:
        return self.flat._shapes[self.index]


class FlatViews:
    def __init__(self, model: Model, states: list[tuple[Any, nn.Module]]) -> None:
        self._views: dict[tuple[nn.Module, str], FlatView] = {}
        names = {(slot.owner, slot.attribute): slot.name for slot in model.parameter_slots}
        for state, _ in states:
            handle = state._handle
            if handle is None:
                continue
            places = {}
            for index, (attribute, module, _) in enumerate(handle.flat_param._param_infos):
                places[module, attribute] = index
            for attribute, module, _, owner_attribute, owner, _ in handle.flat_param._shared_param_infos:
                places[module, attribute] = places[owner, owner_attribute]
            for place, index in places.items():
                if place in names:
                    self._views[place] = FlatView(names[place], handle, index)

    def all(self) -> list[FlatView]:
        return list(self._views.values())

    def names_in(self, handle: FlatParamHandle | None) -> list[str]:
        return [view.name for view in self._in(handle)]

    def _in(self, handle: FlatParamHandle | None) -> list[FlatView]:
        return [view for view in self.all() if view.handle is handle]

    def parameter(self, slot: Slot) -> Parameter:
        """As user code would find it now: sliced, whole, or (ignored by FSDP) as it was."""
        view = self._views.get((slot.owner, slot.attribute))
        if view is None:
            return Parameter(slot.name, slot.tensor, whole(slot.shape), slot.tensor.requires_grad, slot.tensor.grad)
        if view.handle._use_orig_params:
            return _original(slot, view)
        return _inside_flat(slot, view)

    def updated_by_optimizers(self, slot: Slot) -> torch.Tensor:
        view = self._views.get((slot.owner, slot.attribute))
        if view is None:
            return slot.tensor
        return view.flat._params[view.index] if view.handle._use_orig_params else view.flat

    def part_of(self, slot: Slot, state: torch.Tensor) -> tuple[torch.Tensor, Placement]:
        """The slot's part of a tensor that is shaped like what optimizers update: the local tensor and where it lies."""
        view = self._views.get((slot.owner, slot.attribute))
        if view is None or not view.handle.uses_sharded_strategy and view.handle._use_orig_params:
            return state, whole(slot.shape)
        if view.handle._use_orig_params:
            return state, _shard_placement(view)
        return _cut(view, state)

    def parts_of_local(self, handle: FlatParamHandle, saved: ShardedTensor) -> list[tuple[str, torch.Tensor, Placement]]:
        """What a local state dict has of each parameter in the handle's flat one, by its name from the unit: the padding of the shard is left out there."""
        shards = saved.local_shards()
        local = shards[0].tensor if shards else torch.empty(0, dtype=saved.dtype)
        return [(view.flat._fqns[view.index], *_shard_of(view, local)) for view in self._in(handle)]


def _sharded_now(view: FlatView) -> bool:
    handle = view.handle
    return handle.uses_sharded_strategy and handle.is_sharded(view.flat) and not handle._skipped_use_sharded_views


def _gradient_is_whole(view: FlatView) -> bool:
    """Inside `no_sync` gradients stay as the backward made them. Of one element the shape does not tell; a backward that reduced takes the flag back."""
    gradient = view.flat.grad
    return not view.handle.uses_sharded_strategy or (
        gradient is not None
        and gradient.shape == view.flat._unpadded_unsharded_size
        and (gradient.shape != view.flat._sharded_size or getattr(view.flat, "_post_backward_called", False))
    )


def _shard_placement(view: FlatView) -> Placement:
    info = view.flat._shard_param_infos[view.index]
    if not info.in_shard:
        return flat(view.shape, 0, 0)
    return flat(view.shape, info.intra_param_start_idx, info.numel_in_shard)


def _cut(view: FlatView, tensor: torch.Tensor) -> tuple[torch.Tensor, Placement]:
    """This parameter's elements in a tensor shaped like the flat parameter, sharded or not."""
    if not view.handle.uses_sharded_strategy or tensor.shape != view.flat._sharded_size:
        return list(view.handle._get_unflat_views(tensor))[view.index], whole(view.shape)
    return _shard_of(view, tensor)


def _shard_of(view: FlatView, shard: torch.Tensor) -> tuple[torch.Tensor, Placement]:
    info = view.flat._shard_param_infos[view.index]
    begin = info.offset_in_shard if info.in_shard else 0
    end = begin + (info.numel_in_shard if info.in_shard else 0)
    return shard[begin:end], _shard_placement(view)


def _original(slot: Slot, view: FlatView) -> Parameter:
    """use_orig_params=True: the parameter in the slot, or the tensor that stands in for it between forward and backward."""
    exposed = slot.tensor
    placement = _shard_placement(view) if _sharded_now(view) else whole(view.shape)
    requires_grad = view.flat._params[view.index].requires_grad
    gradient = exposed.grad if isinstance(exposed, nn.Parameter) else None
    gradient_placement = whole(view.shape) if gradient is not None and _gradient_is_whole(view) else placement
    return Parameter(slot.name, exposed, placement, requires_grad, gradient, gradient_placement)


def _inside_flat(slot: Slot, view: FlatView) -> Parameter:
    """use_orig_params=False: a stretch of the flat parameter."""
    value, placement = _cut(view, view.flat.detach())
    if view.flat.grad is None:
        return Parameter(slot.name, value, placement, view.flat.requires_grad)
    if _gradient_is_whole(view):
        gradient = list(view.handle._get_unflat_views(view.flat.grad))[view.index]
        return Parameter(slot.name, value, placement, view.flat.requires_grad, gradient, whole(view.shape))
    gradient, gradient_placement = _cut(view, view.flat.grad)
    return Parameter(slot.name, value, placement, view.flat.requires_grad, gradient, gradient_placement)
