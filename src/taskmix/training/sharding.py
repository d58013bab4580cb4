"""Ranks that shard the encoder (FSDP2), for encoders too large for one device."""

from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from taskmix.errors import UserError
from taskmix.models.conditioned import ConditionedTextEncoder
from taskmix.models.encoders import TextEncoder
from taskmix.models.frozen import layer_stack
from taskmix.models.multitask import MultiTaskModel
from taskmix.training.ranks import Group


class ShardedGroup(Group):
    """Ranks that each hold a shard of the encoder's parameters, gradients and optimiser state."""

    # `fully_shard` puts a layer's parameters together when it is used, and sums and divides its
    # gradients in the backward pass. The heads are small, and a rank may not need all of them in a
    # step: every rank has them whole, and they are summed as without sharding.
    shards = True

    def check(self, model: nn.Module) -> None:
        _encoder(model)

    def prepared(self, model: nn.Module, device: torch.device) -> nn.Module:
        encoder = _encoder(model)
        mesh = init_device_mesh(device.type, (self.count,))
        # The modules of a conditioned encoder call parts of a layer, so that it is sharded as one.
        conditioned = isinstance(encoder, ConditionedTextEncoder)
        layers = [] if conditioned else layer_stack(encoder.model)
        for module in [*layers, encoder.model]:
            sharded = fully_shard(module, mesh=mesh)
            assert isinstance(sharded, FSDPModule)
            # Losses are weighted by their shares already: gradients are to be summed.
            sharded.set_gradient_divide_factor(1.0)
            sharded.set_force_sum_reduction_for_comms(True)
        model.to(device)
        for module in encoder.model.modules():
            if isinstance(module, FSDPModule):
                # The memory for whole parameters is made here: made by an evaluation, in torch's
                # inference mode, it could not be used in training.
                module.unshard()
                module.reshard()
        return model

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        # Those of divided parameters are summed already.
        super().add_gradients(p for p in parameters if not isinstance(p, DTensor))

    def clip(self, parameters: Iterable[Tensor], longest: float) -> Tensor:
        gradients = [p.grad for p in parameters if p.grad is not None]
        sharded = [g.to_local() for g in gradients if isinstance(g, DTensor)]
        replicated = [g for g in gradients if not isinstance(g, DTensor)]
        squares = torch.stack([_square(sharded, replicated[0]), _square(replicated, replicated[0])])
        with self._talking():
            dist.all_reduce(squares[0])
        length = squares.sum().sqrt()
        torch._foreach_mul_([*sharded, *replicated], (longest / (length + 1e-6)).clamp(max=1.0))
        return length

    def send(self, tensors: Sequence[Tensor]) -> None:
        super().send([tensor for tensor in tensors if not isinstance(tensor, DTensor)])

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            for name, tensor in tensors.items()
        }

    def parts(self, tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
        owners = dict(model.named_parameters())
        return {
            name: _part(tensor, owners.get(name.rpartition(":")[0] or name))
            for name, tensor in tensors.items()
        }


def _encoder(model: nn.Module) -> TextEncoder | ConditionedTextEncoder:
    encoder = model.encoder if isinstance(model, MultiTaskModel) else model
    if isinstance(encoder, TextEncoder | ConditionedTextEncoder):
        return encoder
    raise UserError(
        "ranks.shard: expected a text encoder of transformers, found " + type(encoder).__name__
    )


def _square(gradients: list[Tensor], like: Tensor) -> Tensor:
    if not gradients:
        return torch.zeros((), device=like.device)
    lengths: Tensor = torch.stack(torch._foreach_norm(gradients))
    return lengths.square().sum()


def _part(tensor: Tensor, owner: Tensor | None) -> Tensor:
    if not isinstance(owner, DTensor) or tensor.shape != owner.shape:
        return tensor  # of a head, or the optimiser's count of steps
    mesh, places = owner.device_mesh, owner.placements
    return distribute_tensor(tensor.to(owner.device), mesh, places, src_data_rank=None)
