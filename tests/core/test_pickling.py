import copy
import pickle

import pytest
import torch

from reference import assert_close
from trellisnet import TrellisNet
from trellisnet.baselines.gated_conv import GatedConvBody


def nets():
    return {
        "dense": TrellisNet(3, 8, 4, weight_norm=True),
        "groups": TrellisNet(3, 8, 4, weight_norm=True, groups=[5, 3]),
        "without": TrellisNet(3, 8, 4),
        "convolutions": GatedConvBody(3, hidden_size=8, num_layers=2),
    }


@pytest.mark.parametrize("name", nets())
def test_a_net_can_be_pickled(name):
    net = nets()[name]
    x = torch.randn(5, 2, 3)
    again = pickle.loads(pickle.dumps(net))
    assert type(again) is type(net)
    assert str(again) == str(net)
    assert list(again.state_dict()) == list(net.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), net.parameters(), strict=True))
    for each in (net, again, copy.deepcopy(again)):
        each(x)[0].square().sum().backward()
    assert torch.equal(again(x)[0], net(x)[0])
    for ours, theirs in zip(again.parameters(), net.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad)


def test_a_loaded_kernel_has_weight_norm():
    net = pickle.loads(pickle.dumps(TrellisNet(3, 8, 4, weight_norm=True)))
    assert net.kernel.weight_norm
    direction = net.kernel.parametrizations.weight_hidden.original1
    before = net.kernel.weight_hidden.clone()
    with torch.no_grad():
        direction.mul_(2)  # the length of a direction does not count
    assert_close(net.kernel.weight_hidden, before)
